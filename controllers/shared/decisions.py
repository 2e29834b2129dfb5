"""Keeps the log of decisions in a status within its limits."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.decisions import MAX_CLIENT, MAX_MESSAGE, MAX_VMS, Decision

DELETION_BYTES, OTHER_BYTES = 12 * 1024, 4 * 1024
"""Limits of the log as JSON. Deletions have their own limit, because nothing else tells why a VM is gone: an update of
a thousand VMs must not displace the deletions of last night."""
DELETED = "SuccessfulDelete"
DELETED_BY_OTHER = "DeletedByOther"
HEALED = "SuccessfulHeal"
DELETIONS = frozenset({DELETED, DELETED_BY_OTHER, HEALED})
"""reasons of the decisions after which a VM is gone"""

_Key = tuple[str, str, str, str | None, str | None]


def merge_decisions(known: Sequence[Decision], new: Iterable[Decision]) -> tuple[Decision, ...]:
    """The log with new decisions, sorted by time and within its limits. Decisions that the log has are not repeated."""
    vms: dict[_Key, dict[str, None]] = defaultdict(dict)
    for each in (*known, *new):
        vms[each.time, each.reason, each.message, each.set_by, each.node].update(dict.fromkeys(each.vms))
    found = [each for key in sorted(vms, key=lambda key: key[0]) for each in _entries(key, vms[key])]
    kept = {
        id(each)
        for limit, deletions in ((DELETION_BYTES, True), (OTHER_BYTES, False))
        for each in _newest([each for each in found if (each.reason in DELETIONS) is deletions], limit)
    }
    return tuple(each for each in found if id(each) in kept)


def without_recorded(decisions: Iterable[Decision], known: Iterable[Decision]) -> list[Decision]:
    """The decisions that the log does not have about all of their VMs."""
    recorded = {(each.time, each.reason, each.message, vm) for each in known for vm in each.vms}
    return [d for d in decisions if not all((d.time, d.reason, d.message, vm) in recorded for vm in d.vms)]


def has_deletion(decisions: Iterable[Decision], vm: str) -> bool:
    """Whether a decision is the deletion of this VM, in the form NAME/UID."""
    return any(vm in each.vms for each in decisions if each.reason in DELETIONS)


def decision(time: str, reason: str, message: str, *vms: str, set_by: str = "", node: str = "") -> Decision:
    """A decision whose texts are within the limits of the schema."""
    client = set_by[:MAX_CLIENT] or None
    return Decision(time=time, reason=reason, message=message[:MAX_MESSAGE], set_by=client, node=node or None, vms=vms)


def deleted_by_other(time: str, owner: str, vm: str) -> Decision:
    """The deletion of a VM, in the form NAME/UID, that the owner's controller did not ask for."""
    message = f"another client than the {owner}'s controller deleted it; an audit log of the API server has its name"
    return decision(time, DELETED_BY_OTHER, message, vm)


def last_manager(metadata: Json, *path: str) -> str:
    """The client that changed a field last, by `managedFields`; empty if it is not known."""
    found: tuple[str, str] = "", ""
    for each in metadata.get("managedFields") or ():
        if isinstance(each, dict) and at(each.get("fieldsV1"), *(f"f:{key}" for key in path)) is not None:
            found = max(found, (str(each.get("time") or ""), str(each.get("manager") or "")))
    return found[1]


def _entries(key: _Key, vms: Iterable[str]) -> Iterator[Decision]:
    time, reason, message, set_by, node = key
    rest = iter(vms)
    while group := tuple(islice(rest, MAX_VMS)):
        yield Decision(time=time, reason=reason, message=message, set_by=set_by, node=node, vms=group)


def _newest(found: Sequence[Decision], limit_bytes: int) -> Iterator[Decision]:
    for each in reversed(found):
        limit_bytes -= len(json.dumps(each.json(), separators=(",", ":"), ensure_ascii=False).encode()) + 1
        if limit_bytes < 0:
            return
        yield each
