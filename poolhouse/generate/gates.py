"""The reference page of the gates: what may delay the stop of a pool's VM."""

from controllers.pool.gates import hooks
from controllers.pool.gates.disruptions import CAUSES, Effect
from controllers.pool.gates.table import GATES

INTRODUCTION = """# What may delay a pool

A pool stops a VM only if each gate is open that has a mark for the cause of the disruption. It asks them in this
order, and the first one that is closed is the reason that `poolhouse why` and `poolhouse plan` show. The causes:

"""


def page() -> str:
    causes = "".join(f"- *{cause}*: {text}.\n" for cause, (_, text) in CAUSES.items())
    rows = [[gate.name, gate.text, *("✓" if gate.holds_for(cause) else "" for cause in CAUSES)] for gate in GATES]
    rows.append([hooks.NAME, hooks.TEXT, *("✓" for _ in CAUSES)])
    head = ["Gate", "Closed while", *CAUSES]
    lines = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    changes = ", ".join(f"`{gate.name}`" for gate in GATES if gate.least is Effect.CHANGES)
    moves = ", ".join(f"`{gate.name}`" for gate in GATES if gate.least is Effect.MIGRATES)
    return (
        f"{INTRODUCTION}{causes}\n{table}\nA change that stops no guest waits only for {changes}. If KubeVirt migrates"
        f" the VM for it, the change also waits for {moves}.\n"
    )
