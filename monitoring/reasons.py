"""The reasons that events and conditions give, read from the controllers' code, and the page that explains them.

Reasons are part of the product: people write alerts and scripts on them. So each that the code can say has its
sentence here, and a test fails for one that has none, or for a sentence about a reason that is gone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import get_args

from apimachinery.reasons import Reason
from controllers.replicaset.actions import Action as SetAction

ROOT = Path(__file__).resolve().parent.parent / "controllers"
REASON = re.compile(r"[A-Z][A-Za-z0-9]{2,}")
TYPES = {"Normal", "Warning"}

PARTS = {
    "pool": "VirtualMachinePool",
    "replicaset": "VirtualMachineInstanceReplicaSet",
    "migrationpolicy": "MigrationPolicy",
    "defaulting": "VirtualMachine",
    "warmpool": "VirtualMachineWarmPool",
    "claim": "VirtualMachineClaim",
    "certificates": "Secret",
}
"""packages of controllers, and the kind that theirs are about"""


def said() -> Mapping[str, frozenset[str]]:
    """Reasons that the code can give, by the kind of object that they are given for."""
    found: dict[str, set[str]] = defaultdict(set)
    for part, kind in PARTS.items():
        found[kind] |= set(declared(part))
        for path in () if declared(part) else sorted((ROOT / part).rglob("*.py")):
            found[kind] |= set(_literals(ast.parse(path.read_text())))
    found["VirtualMachineInstanceReplicaSet"] |= {
        reason for each in get_args(SetAction) for reason in (each.done, each.refused)
    }
    return {kind: frozenset(reasons) for kind, reasons in found.items()}


def declared(part: str) -> Mapping[str, str]:
    """The members of the Reason enumerations in a package's reasons.py, with their documentation."""
    if not (ROOT / part / "reasons.py").exists():
        return {}
    module = vars(import_module(f"controllers.{part}.reasons")).values()
    return {
        str(each): each.doc for kind in module if isinstance(kind, type) and issubclass(kind, Reason) for each in kind
    }


def _literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = [_words(argument) for argument in node.args]
        if called in ("News", "Failure"):
            yield from (word for each in words[:2] for word in each if word not in TYPES)
        elif called in ("emit", "say", "_say") and len(words) > 2:
            yield from words[2]  # behind the object and Normal or Warning, or a condition's type and whether it holds


def _words(argument: ast.expr) -> list[str]:
    if not isinstance(argument, ast.Constant | ast.IfExp):
        return []
    return [
        each.value
        for each in ast.walk(argument)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and REASON.fullmatch(each.value)
    ]


MEANINGS: Mapping[str, str] = {
    # All kinds
    "InvalidSpec": "The stored spec cannot be read; nothing is done until it is mended. The message has the path.",
    # Pools
    "SuccessfulCreate": "A VM was created, for the reason in the message.",
    "FailedCreate": "A VM could not be created; the message is the API server's. Tried again after a growing pause.",
    "SuccessfulDelete": "A VM was deleted, for the reason in the message.",
    "FailedDelete": "A VM could not be deleted; the message is the API server's.",
    # Replica sets
    "SuccessfulAdopt": "A VMI that matches the selector and had no controller was taken in.",
    "FailedAdopt": "A matching VMI could not be taken in.",
    "SuccessfulRelease": "A VMI whose labels no longer match was let go; it runs on.",
    "FailedRelease": "A VMI could not be let go.",
    "SuccessfulPaused": "The set was paused.",
    "SuccessfulResumed": "The set is kept in number again.",
    # Migration policies
    "TakesPart": "The policy takes part in deciding.",
    "NoSelectors": "The policy selects nothing, so it never wins.",
    "SameSelectors": "An older policy has the same selectors; this one takes no part.",
    "Invalid": "The stored policy cannot be read; it takes no part.",
    "NotActive": "A policy that takes no part is not enforced.",
    "InStep": "KubeVirt's own policy of this name says the same.",
    "Enforced": "KubeVirt obeys the policy (again).",
    "Repaired": "Somebody had changed KubeVirt's policy that enforces this one; it was put back.",
    "Contested": "Somebody changes KubeVirt's policy whenever it is repaired.",
    "KindMissing": "The cluster does not serve `migrations.kubevirt.io`.",
    "NameTaken": "KubeVirt has a policy of this name that is not ours.",
    "Outranked": "KubeVirt may prefer a policy of its own that is not ours.",
    "Refused": "KubeVirt's policy could not be written; the message is the API server's.",
    "StampRefused": "VMs could not be labelled, so KubeVirt does not obey the policy for them; the message says why.",
    "Unsupported": "KubeVirt has no such setting per policy; the rest is enforced.",
    # VMs
    "HardwareDecided": "Hardware that was left open when the VM was created was decided now.",
    "HardwareUndecided": "A VM's hardware cannot be decided as its spec is; it is tried again when it changes.",
    "DuplicateMAC": "A VM has a MAC address that another VM has too.",
}

_NOTE = "<!-- Generated by `make generate`. -->"


def page() -> str:
    """The reference page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (_NOTE, "", "# Reasons", "")
    yield "Reasons of conditions and events, by the kind of object. They are stable, so scripts can use them."
    docs = {kind: {**MEANINGS, **declared(part)} for part, kind in PARTS.items()}
    for kind, reasons in said().items():
        if reasons:
            yield from ("", f"## {kind}", "", "| Reason | Meaning |", "| --- | --- |")
            yield from (f"| `{reason}` | {docs[kind].get(reason, '')} |" for reason in sorted(reasons))
