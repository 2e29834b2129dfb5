"""The reference page of the gates: what may delay the stop of a pool's VM."""

from typing import get_args

from controllers.pool.gates import hooks
from controllers.pool.gates.disruptions import Cause, Effect
from controllers.pool.gates.table import GATES

INTRODUCTION = """# What may delay a pool

A pool stops a VM only if each gate is open that has a mark for the cause of the disruption. It asks them in this
order, and the first one that is closed is the reason that `poolhouse why` and `poolhouse plan` show. The causes:

- *ScaleIn*: the pool has more VMs than `replicas`.
- *Replacement*: with `maxSurge`, a new VM has taken the place of an old one.
- *Healing*: the VM fails.
- *Restore*: a user undoes an update with its snapshots.
- *Update*: the template has changed.
- *Rollback*: the update was aborted, and VMs get the former template again.
- *Lifetime*: the VMI is older than `maxLifetimeSeconds`.

"""


def page() -> str:
    causes = get_args(Cause)
    rows = [[gate.name, gate.text, *("✓" if gate.holds_for(cause) else "" for cause in causes)] for gate in GATES]
    rows.append([hooks.NAME, hooks.TEXT, *("✓" for _ in causes)])
    head = ["Gate", "Closed while", *causes]
    lines = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    changes = ", ".join(f"`{gate.name}`" for gate in GATES if gate.least is Effect.CHANGES)
    moves = ", ".join(f"`{gate.name}`" for gate in GATES if gate.least is Effect.MIGRATES)
    return (
        f"{INTRODUCTION}{table}\nA change that stops no guest waits only for {changes}. If KubeVirt migrates the VM for"
        f" it, the change also waits for {moves}.\n"
    )
