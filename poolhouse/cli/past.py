"""Selects what Events and the logs of decisions in statuses say about a VM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import DISKS_RETAINED, UID_LENGTH
from poolhouse.cli.output import echo
from poolhouse.cli.parameters import short_name

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

VM_KINDS = ("VirtualMachine", "VirtualMachineInstance")
CREATION_SLACK = timedelta(seconds=5)
"""How much earlier than its creationTimestamp a VM may be mentioned: creationTimestamps have whole seconds, and clocks
differ."""
WHOLE_SECOND = timedelta(seconds=1)
SAME_SECONDS = 10.0
"""An Event and a decision with the same reason, this close to each other, are about the same action."""
SAME_MESSAGE_SECONDS = 120.0
"""An Event and a decision with the same reason and message, this close to each other, are about the same action. The
decision has the time of the plan, and its write may come a minute later if the API server is busy."""
CREATIONS = ("SuccessfulCreate",)
DELETIONS = ("SuccessfulDelete", "SuccessfulHeal", "DeletedByOther")


@dataclass(frozen=True)
class Identity:
    """The VM that is asked about. Without UID, all VMs that had the name."""

    name: str
    uid: str = ""
    """the UID, or its first characters for a VM that only logs and Events know"""
    created: datetime | None = None
    """for a deleted VM, the end of the earlier VM of the name; None if it is not known"""
    gone: datetime | None = None
    """when the VM was deleted; None if it exists, or if that is not known"""

    @classmethod
    def of(cls, name: str, document: Json | None) -> Identity:
        if document is None:
            return cls(name)
        metadata = document["metadata"]
        return cls(name, metadata["uid"], parse_time(metadata["creationTimestamp"]))

    @property
    def short_uid(self) -> str:
        return self.uid[:UID_LENGTH]

    @property
    def reference(self) -> str:
        """The VM as logs of decisions write it."""
        return f"{self.name}/{self.short_uid}"

    def did(self, reason: str, time: datetime) -> bool:
        """Whether what happened to a VM of the name at this time, without a UID, happened to this VM."""
        if reason in DELETIONS and self.gone is not None:
            return abs(time - self.gone).total_seconds() <= SAME_SECONDS
        # The deletion of a VM and the creation of the next one of its name can have the same second.
        early = -WHOLE_SECOND if reason in DELETIONS else CREATION_SLACK
        late = -WHOLE_SECOND if reason in CREATIONS else CREATION_SLACK
        after_creation = self.created is None or time >= self.created - early
        return after_creation and (self.gone is None or time <= self.gone + late)


@dataclass(frozen=True)
class Logged:
    """A decision about one VM, from the log of its owner."""

    time: datetime
    reason: str
    message: str
    set_by: str
    uid: str
    """the first characters of the VM's UID; empty for a created VM"""
    owner: str
    """kind and name of the owner, such as `VirtualMachinePool web`"""
    vm: str = ""
    """the name of the VM"""

    def json(self, note: str | None = None) -> Json:
        row = {"time": format_time(self.time), "reason": self.reason, "note": self.message if note is None else note}
        return {**row, "owner": self.owner, **({"setBy": self.set_by} if self.set_by else {})}


def mentions(event: Json, vm: str) -> bool:
    """Whether the event regards the VM, or its note has the VM's name. An owner can have the same name as the VM."""
    regarding = event["regarding"]
    if regarding.get("name") == vm and regarding.get("kind") in VM_KINDS:
        return True
    return re.search(rf"(?<![\w.-]){re.escape(vm)}(?![\w-])", event.get("note") or "") is not None


def concerns(event: Json, vm: Identity, time: datetime) -> bool:
    """Whether the event is about this VM, and not about an earlier one of its name."""
    if not mentions(event, vm.name):
        return False
    if uid := _own_uid(event, vm.name):
        return uid.startswith(vm.uid)
    return vm.did(event.get("reason") or "", time)


def _own_uid(event: Json, name: str) -> str:
    """The UID of the VM that the event regards; empty if it regards another object."""
    regarding = event["regarding"]
    return (
        str(regarding.get("uid") or "") if (regarding.get("kind"), regarding.get("name")) == (VM_KINDS[0], name) else ""
    )


def deleted_vms(present: Identity, decisions: Iterable[Logged], events: Iterable[Json]) -> list[Identity]:
    """The VMs that had the name of `present`, and that logs or Events name with their UID. The last deleted is last."""
    from poolhouse.runtime.events import last_observed

    told = [(each.uid, each.time, each.reason in DELETIONS) for each in decisions if each.uid]
    told += [
        (uid[:UID_LENGTH], parse_time(last_observed(event)), False)
        for event in events
        if (uid := _own_uid(event, present.name))
    ]
    last: dict[str, datetime] = {}
    deleted: dict[str, datetime] = {}
    for uid, time, gone in told:
        if uid != present.short_uid:
            last[uid] = max(time, last.get(uid, time))
            if gone:
                deleted[uid] = max(time, deleted.get(uid, time))
    found: list[Identity] = []
    for uid in sorted(last, key=lambda each: deleted.get(each, last[each])):
        before = found[-1].gone if found else None
        found.append(Identity(present.name, uid, before, deleted.get(uid, last[uid])))
    return found


def logged(owners: Iterable[Json], vm: str) -> Iterator[Logged]:
    """Yields what the logs of pools and replica sets say about all VMs of the name."""
    for owner in owners:
        for each in (owner.get("status") or {}).get("decisions") or ():
            for reference in each.get("vms") or ():
                name, _, uid = reference.partition("/")
                if name == vm:
                    title = f"{owner['kind']} {owner['metadata']['name']}"
                    message, set_by = each.get("message") or "", each.get("setBy") or ""
                    yield Logged(parse_time(each["time"]), each["reason"], message, set_by, uid, title, vm)


def of_vm(decisions: Iterable[Logged], vm: Identity) -> list[Logged]:
    """The decisions about this VM, and not about an earlier one of its name."""
    return [
        each
        for each in decisions
        if not vm.uid or (vm.short_uid == each.uid if each.uid else vm.did(each.reason, each.time))
    ]


def deletion_of(decisions: Iterable[Logged], vm: Identity) -> Logged | None:
    """The last deletion of the VM in the logs; without a UID, of any VM of the name."""
    found = [each for each in decisions if each.reason in DELETIONS and (not vm.uid or each.uid == vm.short_uid)]
    return max(found, key=lambda each: each.time, default=None)


def merge(events: Sequence[Json], decisions: Sequence[Logged]) -> list[Json]:
    """Rows with `time`, `reason` and `note`, sorted by time. A decision with an event adds only who set the spec. Each
    event belongs to the decision that is nearest in time."""
    rows = [dict(each) for each in events]
    pairs = sorted(
        (seconds, row, number)
        for row, event in enumerate(rows)
        for number, each in enumerate(decisions)
        if event["reason"] == each.reason and (seconds := _seconds_between(event, each)) <= _limit(event, each)
    )
    told: dict[int, int] = {}
    for _, row, number in pairs:
        if number not in told and row not in told.values():
            told[number] = row
            if decisions[number].set_by:
                rows[row]["setBy"] = decisions[number].set_by
    rows += [each.json(_as_event(each)) for number, each in enumerate(decisions) if number not in told]
    return sorted(rows, key=lambda row: parse_time(str(row["time"])))


def _as_event(decision: Logged) -> str:
    """The decision in the words of its Event, which the cluster has forgotten or counts as one with a later Event."""
    from controllers.pool import actions as of_pools
    from controllers.replicaset import actions as of_replica_sets

    actions = {"VirtualMachinePool": of_pools, "VirtualMachineInstanceReplicaSet": of_replica_sets}
    known = vars(actions[kind]).values() if (kind := decision.owner.partition(" ")[0]) in actions else ()
    done = next((each.past for each in known if getattr(each, "succeeded", None) == decision.reason), None)
    if done is None or not decision.vm:
        return decision.message
    retained = ", its disks are retained" if decision.message.endswith(DISKS_RETAINED) else ""
    why = decision.message.removesuffix(DISKS_RETAINED)
    return f"{done} {decision.vm}{retained}" + (f": {why}" if why else "")


def _limit(row: Json, decision: Logged) -> float:
    why = decision.message.removesuffix(DISKS_RETAINED)
    return SAME_MESSAGE_SECONDS if why and why in (row["note"] or "") else SAME_SECONDS


def _seconds_between(row: Json, decision: Logged) -> float:
    return abs((parse_time(str(row["time"])) - decision.time).total_seconds())


async def events_about(api: Api, namespace: str, *names: str) -> list[Json]:
    """The Events about objects of these names; with a note for the user if he may not list them."""
    from poolhouse.runtime.errors import Forbidden
    from poolhouse.runtime.events import EVENTS

    found: list[Json] = []
    for name in dict.fromkeys(filter(None, names)):
        try:
            found += (await api.list(EVENTS, namespace, field_selector=f"regarding.name={name}"))[0]
        except Forbidden as error:
            echo(f"events are not shown, because you may not list them: {error.message}", err=True)
            break
    return found


def deletions(owners: Iterable[Json]) -> list[Json]:
    """The deleted VMs in the logs of pools, replica sets and warm pools, the last deletion last."""
    rows = [
        {
            "time": each["time"],
            "namespace": owner["metadata"]["namespace"],
            "vm": vm,
            "owner": f"{short_name(owner['kind'])}/{owner['metadata']['name']}",
            "reason": each["reason"],
            "message": each.get("message") or "",
            "setBy": each.get("setBy"),
        }
        for owner in owners
        for each in (owner.get("status") or {}).get("decisions") or ()
        if each["reason"] in DELETIONS
        for vm in each.get("vms") or ()
    ]
    return sorted(rows, key=lambda row: (row["time"], row["namespace"], row["vm"]))
