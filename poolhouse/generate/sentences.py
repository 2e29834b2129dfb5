"""Generates the page of the sentences of the designs, with the tests that show each of them.

A test names its sentences by the marker `@pytest.mark.sentence("1.9")`, or by the same mark of a `pytest.param`.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
MARKER = "sentence"
TITLES = {
    "1": "VirtualMachinePool",
    "2": "VirtualMachineInstanceReplicaSet",
    "3": "MigrationPolicy",
}
"""of each design, by the first part of a number"""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a design, in our words."""

    number: str
    text: str

    @property
    def design(self) -> str:
        return self.number.partition(".")[0]


SENTENCES = (
    Sentence("1.1", "A pool has as many VMs as `replicas`."),
    Sentence("1.2", "A new template is rolled out to the VMs of the pool."),
    Sentence("1.3", "Users and autoscalers scale a pool out and in."),
    Sentence("1.4", "The VMs of a pool are similar: all come from one template."),
    Sentence("1.5", "`template` is required."),
    Sentence("1.6", "`replicas` is required, and an integer."),
    Sentence("1.7", "`maxUnavailable` is a number or a percentage."),
    Sentence("1.8", "`maxUnavailable` defaults to 25 %."),
    Sentence("1.9", "An update makes at most `maxUnavailable` VMs unavailable at a time."),
    Sentence("1.10", "The default update strategy is proactive: VMs are restarted."),
    Sentence("1.11", "The update strategy `unmanaged` touches no VM after its creation."),
    Sentence("1.12", "The update strategy `opportunistic` updates halted VMs."),
    Sentence("1.13", "The default selection policy is Random."),
    Sentence("1.14", "A base policy is Oldest, Newest or Random."),
    Sentence("1.15", "The default scale-in strategy is proactive: VMs are shut down."),
    Sentence("1.16", "The scale-in strategy `unmanaged` deletes no VM."),
    Sentence("1.17", "The scale-in strategy `opportunistic` deletes halted VMs."),
    Sentence("1.18", "State preservation is Disabled by default."),
    Sentence("1.19", "With `Offline` the PVCs of a VM are preserved at scale-in."),
    Sentence("1.20", "`Online` is not possible, and is refused."),
    Sentence("1.21", "Autohealing is disabled by default."),
    Sentence("1.22", "`startupFailureThreshold` defaults to 3."),
    Sentence("1.23", "A VM is replaced after that many consecutive failures to reach a running state."),
    Sentence("1.24", "A VMI whose liveness probe fails counts as a failure."),
    Sentence("1.25", "The example with automatic updates and preserved state is a valid pool."),
    Sentence("1.26", "The example with manual updates names `replica`: the error names the field `replicas`."),
    Sentence("1.27", "The example with ordered policies has no selector: the error shows the form."),
    Sentence("1.28", "A VM without the pool's owner reference is detached: the pool does not manage it."),
    Sentence("1.29", "The pool replaces a detached VM."),
    Sentence("1.30", "The ordinal of a detached VM is skipped until the VM returns or is deleted."),
    Sentence("1.31", "VM names are the pool's name and a sequential postfix."),
    Sentence("1.32", "A scale-out fills gaps before it appends ordinals."),
    Sentence("1.33", "With `Offline`, the next VM of the name has the preserved state."),
    Sentence("1.34", "With `Disabled`, the state is deleted and provisioned again."),
    Sentence("1.35", "VMs inherit the labels and annotations of the template's metadata."),
    Sentence("1.36", "VMIs inherit the labels and annotations of the VMI template's metadata."),
    Sentence("1.37", "A dataVolumeTemplate gives each VM its own storage, with the VM's postfix."),
    Sentence("1.38", "References to Secrets and ConfigMaps are used unchanged by default."),
    Sentence("1.39", "`appendPostfixToSecretReferences` appends the postfix to names of Secrets."),
    Sentence("1.40", "`appendPostfixToConfigMapReferences` appends the postfix to names of ConfigMaps."),
    Sentence("1.41", "A failed VMI is started again with the same volumes, before the pool replaces the VM."),
    Sentence("1.42", "Autohealing deletes a VM with its storage, and provisions both again."),
    Sentence("1.43", "Autohealing has an exponential back-off."),
    Sentence("1.44", "A pool creates and updates at most a burst of VMs at a time."),
    Sentence("1.45", "The burst is 250 by default, and a setting of the controllers."),
    Sentence("1.46", "Selection policies order proactive scale-in and proactive updates."),
    Sentence("1.47", "The base policy applies to each VM that no ordered policy selects."),
    Sentence("1.48", "Random selects VMs whose loss disrupts least."),
    Sentence("1.49", "The order of the ordered policies is their priority."),
    Sentence("1.50", "A metric counts the starts of VMs in a pool."),
    Sentence("1.51", "A metric counts the stops of VMs in a pool."),
    Sentence("1.52", "Histograms of phase transitions have the pool as a label."),
    Sentence("1.53", "A rollout of SSH keys that cloud-init does not apply again says so, with the ways that work."),
    Sentence("2.1", "A replica set has as many VMIs of its template as `replicas`."),
    Sentence("2.2", "`template` is the metadata and the spec of a VMI."),
    Sentence("2.3", "The selector must match the labels of the template."),
    Sentence("2.4", "The documented version `v1alpha2` is served."),
    Sentence("2.5", "`status.replicas` counts VMIs in a non-final state that match the selector."),
    Sentence("2.6", "`status.readyReplicas` counts those of them that are ready."),
    Sentence("2.7", "A running or migrating VMI is ready."),
    Sentence("2.8", "A refused deletion sets ReplicaFailure with the message of the API server."),
    Sentence("2.9", "A refused creation sets ReplicaFailure with the message of the API server."),
    Sentence("2.10", "A VMI that takes long to end is replaced in advance."),
    Sentence("2.11", "The set creates VMIs itself: no ReplicaSet of Kubernetes stands between."),
    Sentence("2.12", "A scale-in deletes VMIs that are not ready first, then migrating VMIs, then ready VMIs."),
    Sentence("2.13", "A migration does not change the number of replicas."),
    Sentence("2.14", "A changed label releases a VMI, or returns it."),
    Sentence("2.15", "VMIs have a controller reference to their set."),
    Sentence("2.16", "The set adopts orphans that match its selector."),
    Sentence("3.1", "A policy applies migration settings to a group of VMs."),
    Sentence("3.2", "The policy of a VM is deterministic at any time."),
    Sentence("3.3", "An administrator changes policies without the owners of VMs."),
    Sentence("3.4", "A user chooses a policy by a label that the administrator offers."),
    Sentence("3.5", "Policies select VMIs by labels of the VMI."),
    Sentence("3.6", "Policies select VMIs by labels of the namespace."),
    Sentence("3.7", "A policy with both selectors needs both to match."),
    Sentence("3.8", "Two policies with the same selectors are not allowed."),
    Sentence("3.9", "The policy with the most matching labels applies."),
    Sentence("3.10", "Among equal keys, labels with a value are more detailed than any value."),
    Sentence("3.11", "Among equally many labels, the lexicographic order of the label keys decides."),
    Sentence("3.12", "Labels of VMIs take precedence over labels of namespaces."),
    Sentence("3.13", "The seven policies of the example have the documented order."),
    Sentence("3.14", "A policy has the settings of KubeVirt's MigrationConfiguration that are not cluster-wide."),
    Sentence("3.15", "All settings are optional: KubeVirt's configuration applies where the policy has none."),
    Sentence("3.16", "KubeVirt's configuration applies to VMs without a policy."),
    Sentence("3.17", "A label with a value matches the key and the value."),
    Sentence("3.18", "A label with an empty value matches any value of the key."),
    Sentence("3.19", "`hpc-workloads: true`, which is a boolean in YAML, is a label value."),
    Sentence("3.20", "The full manifest can be applied as it is written."),
    Sentence("3.21", "A test tells a pre-copy migration from a post-copy migration."),
    Sentence("3.22", "A throttled migration fails reliably."),
    Sentence("3.23", "An administrator tunes migrations temporarily, for an event."),
)


@dataclass(frozen=True, order=True)
class NamedTest:
    """A test, or a row of its table."""

    path: str
    function: str
    row: str = ""

    def __str__(self) -> str:
        words = self.function.removeprefix("test_").replace("_", " ")
        return f"`{self.path}`: {words}" + (f", “{self.row}”" if self.row else "")


def marked(tests: Path = TESTS) -> dict[str, list[NamedTest]]:
    """The tests of each sentence, by number."""
    found: dict[str, set[NamedTest]] = defaultdict(set)
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text()
        if f"mark.{MARKER}(" in text:
            for number, function, row in _marks(ast.parse(text)):
                found[number].add(NamedTest(path.relative_to(tests.parent).as_posix(), function, row))
    return {number: sorted(tests) for number, tests in found.items()}


def page() -> str:
    tests = marked()
    lines = ["<!-- Generated by `make generate`. -->", "", "# Sentences of the designs and their tests", ""]
    lines += ["Each sentence of the designs has a test that names it. A row of a table of tests is in quotes.", ""]
    for design, title in TITLES.items():
        lines += [f"## {title}", "", "| | Sentence | Tests |", "| --- | --- | --- |"]
        for each in SENTENCES:
            if each.design == design:
                lines.append(f"| {each.number} | {each.text} | {'<br>'.join(map(str, tests.get(each.number, ())))} |")
        lines.append("")
    return "\n".join(lines)


def _marks(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Number, function and row of each mark. Rows may be in a list outside of the function that uses it."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in tree.body:
        used = isinstance(node, ast.Assign) and {target.id for target in node.targets if isinstance(target, ast.Name)}
        users = [f.name for f in functions if used and any(_names(each) & used for each in f.decorator_list)]
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ", ".join(users)
        rows = [call for call in _calls(node, "param") if not isinstance(call, str)]
        in_rows = set()
        for row in rows:
            label = next((_text(k.value) for k in row.keywords if k.arg == "id"), "")
            for mark in _calls(row, MARKER):
                in_rows.add(mark)
                yield from ((_text(argument), name, label) for argument in mark.args)
        for mark in set(_calls(node, MARKER)) - in_rows:
            yield from ((_text(argument), name, "") for argument in mark.args)


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _text(node: ast.AST) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
