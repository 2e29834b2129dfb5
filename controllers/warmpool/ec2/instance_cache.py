"""What is known of all instances: what EC2 said last, and what we have done since that it may not say yet.

EC2 answers with what was, now and then for seconds. So what we have written counts until an answer shows it, or until
it should have: the revision in the tags tells which is the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from controllers.warmpool.cache import VM_INDEXES, VMI_INDEXES, WarmVMCache
from controllers.warmpool.ec2.tags import GOING, Tags, guest, read, revision, view, written
from controllers.warmpool.node import Node
from controllers.warmpool.vmi import VMI
from controllers.warmpool.warm_vm import WarmVM
from runtime.resource import Key
from runtime.store import Store

Json = dict[str, Any]

SHOWN_SECONDS = 60.0
"""An answer that comes later than this after a write shows it, or it was undone."""

MachineChanged = Callable[[WarmVM | None, WarmVM | None], None]
GuestChanged = Callable[[VMI | None, VMI | None], None]


@dataclass(frozen=True)
class _Done:
    """By us, to one instance."""

    at: float
    instance: Json
    gone: bool = False


@dataclass
class InstanceCache:
    clock: Callable[[], float]
    machines: Store[WarmVM] = field(default_factory=lambda: Store(VM_INDEXES))
    vmis: Store[VMI] = field(default_factory=lambda: Store(VMI_INDEXES))
    _done: dict[str, _Done] = field(default_factory=dict)
    _of_machines: list[MachineChanged] = field(default_factory=list)
    _of_guests: list[GuestChanged] = field(default_factory=list)

    @property
    def queues(self) -> WarmVMCache:
        return WarmVMCache(self.machines, self.vmis, Store[Node]())

    def subscribe(self, of_machines: MachineChanged, of_guests: GuestChanged) -> None:
        self._of_machines.append(of_machines)
        self._of_guests.append(of_guests)

    def all(self, instances: Iterable[Json], since: float) -> None:
        """These are all that there are, as EC2 has answered to a question that was asked at `since`."""
        known = {each["InstanceId"]: each for each in map(self.newest, instances)}
        for instance_id, done in list(self._done.items()):
            if done.at + SHOWN_SECONDS < since:
                del self._done[instance_id]
            elif instance_id not in known and not done.gone:
                known[instance_id] = done.instance
        views = {m.key: (m, each) for each in known.values() if (m := view(each)) is not None}
        for key in [m.key for m in self.machines if m.key not in views]:
            self._put(key, None, None)
        for key, (found, instance) in views.items():
            self._put(key, found, guest(instance))

    def one(self, instance: Json) -> WarmVM | None:
        """As an answer to a call about it has it."""
        found = self.newest(instance)
        seen = view(found)
        if seen is not None:
            self._put(seen.key, seen, guest(found))
        return seen

    def unseen(self, instances: Iterable[Json]) -> list[str]:
        """IDs of what we have made or written to a moment ago, and that is not among these."""
        there = {each["InstanceId"] for each in instances}
        return [each for each in self._done if each not in there and self.recent(each) is not None]

    def recent(self, instance_id: str) -> Json | None:
        """What we have made or written to a moment ago, and not ended. That EC2 does not know it means nothing: it
        shows even what was terminated for an hour."""
        done = self._done.get(instance_id)
        return done.instance if done and not done.gone and self.clock() - done.at <= SHOWN_SECONDS else None

    def newest(self, instance: Json) -> Json:
        """It, with what we have written since that the answer does not show."""
        done = self._done.get(instance["InstanceId"])
        if done is None:
            return instance
        state = (instance.get("State") or {}).get("Name")
        if done.gone and state not in GOING:
            return {**instance, "State": {"Name": GOING[0]}}
        if revision(read(done.instance)) > revision(read(instance)):
            return {**instance, "Tags": done.instance["Tags"]}
        return instance

    def wrote(self, instance: Json, tags: Tags) -> WarmVM | None:
        """We have set these tags."""
        changed = {**instance, "Tags": written({**read(instance), **tags})}
        self._done[instance["InstanceId"]] = _Done(self.clock(), changed)
        return self.one(changed)

    def made(self, instance: Json) -> WarmVM | None:
        self._done[instance["InstanceId"]] = _Done(self.clock(), instance)
        return self.one(instance)

    def ended(self, instance: Json) -> None:
        self._done[instance["InstanceId"]] = _Done(self.clock(), instance, gone=True)
        self.one(instance)

    def _put(self, key: Key, found: WarmVM | None, run: VMI | None) -> None:
        old_run, old = self.vmis.get(key), self.machines.get(key)
        if run != old_run:
            self.vmis.put(key, run) if run is not None else self.vmis.drop(key)
        if found != old:
            self.machines.put(key, found) if found is not None else self.machines.drop(key)
            for changed in self._of_machines:
                changed(old, found)
        if run != old_run:
            for seen in self._of_guests:
                seen(old_run, run)
