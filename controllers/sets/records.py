"""What a process remembers of the sets of one kind between reconciles. A restart of the process loses it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from controllers.sets.set_aside import S, SetAside, SetView, describe, set_aside_status
from controllers.sets.write_batches import WriteBatches
from controllers.shared.decisions import deleted_by_other
from controllers.shared.planner import PlanTooExpensive
from controllers.shared.status_writer import LastWrite, View
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.decisions import LoggedStatus, vm_reference
from poolhouse.runtime.events import ObjectMeta
from poolhouse.runtime.expectations import Expectations


class Owned(ObjectMeta, Protocol):
    """The view of a VM or VMI, which a set may own."""

    @property
    def deleting(self) -> bool: ...


V = TypeVar("V", bound=Owned)


@dataclass
class Memory:
    """The memory of one set. It ends with the set."""

    last_status_write: LastWrite = field(default_factory=LastWrite)
    set_aside: SetAside | None = None
    """set while plans of the set are too expensive"""


M = TypeVar("M", bound=Memory)


@dataclass
class Records(Generic[V, M]):
    kind: str
    """of the sets, in sentences: `pool`"""
    batches: WriteBatches[Any]
    new_memory: Callable[[Any], M]
    """the memory of a set that this process has not seen before"""
    owner_uid: Callable[[V], str]
    """UID of the set that owns the VM or VMI; empty if no set of this kind does"""
    owner: Callable[[V], View[LoggedStatus] | None]
    """that set; None if it is deleted, because its VMs must not create a new memory"""
    now: Callable[[], datetime]
    shown: Callable[[V], Iterable[str]] = lambda each: (each.name,)
    """names of the expected creations that an event of this view fulfils"""
    memories: dict[str, M] = field(default_factory=dict)
    """by UID of the set"""

    @property
    def expectations(self) -> Expectations[str]:
        return self.batches.expectations

    def memory(self, of: ObjectMeta) -> M:
        if of.uid not in self.memories:
            self.memories[of.uid] = self.new_memory(of)
        return self.memories[of.uid]

    def memory_of_owner(self, of: V) -> M | None:
        """The memory of the set that owns the VM or VMI."""
        owner = self.owner(of)
        return self.memory(owner) if owner is not None else None

    def pause(self, of: SetView[Any]) -> float:
        """Seconds until a set is planned again whose plan was too expensive, or 0."""
        known = self.memories.get(of.uid)
        if known is None or known.set_aside is None:
            return 0.0
        return known.set_aside.seconds_left(of.generation, self.batches.clock())

    def set_aside(self, of: SetView[S], generation: int, error: PlanTooExpensive, has: str) -> S:
        """Sets a set aside whose plan of this generation was too expensive. Returns its status. `has` says what the set
        has much of."""
        memory = self.memory(of)
        times = memory.set_aside.times + 1 if memory.set_aside is not None else 1
        memory.set_aside = SetAside(generation, self.batches.clock(), times)
        message = describe(error, self.kind, has)
        return set_aside_status(of.status, message, generation=of.generation, now=self.now())

    def begin(self) -> None:
        """Begins to lead. The previous leader has recorded its decisions."""
        for memory in self.memories.values():
            memory.last_status_write.forget_decisions()

    def set_changed(self, old: ObjectMeta | None, new: ObjectMeta | None) -> None:
        """Forgets a set that is deleted, or that another one of the same name replaces."""
        if old is not None and (new is None or new.uid != old.uid):
            self.batches.forget(old.uid)
            self.memories.pop(old.uid, None)

    @contextmanager
    def reconciling(self, stored: Callable[[], ObjectMeta | None]) -> Iterator[None]:
        """Around the reconcile of a set: its end may remember something of a set whose deletion has already been seen.
        `stored` returns the set in the store."""
        before = stored()
        try:
            yield
        finally:
            self.set_changed(before, stored())

    def changed(self, old: V | None, new: V | None) -> bool:
        """Records what a change of a VM or VMI shows. Returns whether this was the last event that a set waited for, so
        that its next burst can start at once."""
        owners = {self.owner_uid(each) for each in (old, new) if each is not None}
        awaited = self.batches.awaited(owners)
        if old is not None and self.begins_deletion(old, new):
            self._note_deletion(old)
        if new is not None:
            for name in self.shown(new):
                self.expectations.creation_observed(self.owner_uid(new), name)
            if new.deleting:
                self.expectations.deletion_observed(self.owner_uid(new), new.uid)
        if old is not None and (new is None or (new.uid, self.owner_uid(new)) != (old.uid, self.owner_uid(old))):
            self.expectations.deletion_observed(self.owner_uid(old), old.uid)
        return bool(awaited - self.batches.awaited(owners))

    def begins_deletion(self, old: V, new: V | None) -> bool:
        """Whether the status of the set records the deletion with this change, if the set did not ask for it."""
        return not old.deleting and (new is None or new.uid != old.uid or new.deleting)

    def _note_deletion(self, old: V) -> None:
        owner = self.owner(old)
        if owner is not None and old.uid not in self.expectations.open(owner.uid)[1]:
            self.record_deletion(owner, old)

    def record_deletion(self, owner: View[LoggedStatus], old: V) -> None:
        """Records that another client deletes a VM or VMI of a set."""
        found = deleted_by_other(format_time(self.now()), self.kind, vm_reference(old.name, old.uid))
        self.memory(owner).last_status_write.record_deletion(found, owner.status)

    def synced(self, uids: Iterable[str]) -> bool:
        """Whether the stores show all writes of these sets, or the wait for them is over."""
        clock = self.batches.clock()
        return all(self.expectations.satisfied(uid, clock) for uid in uids)

    def seconds_until_next(self, uids: Iterable[str], *seconds: float | None) -> float | None:
        """The shortest of these times, and of those at which the wait for the sets' writes is over."""
        clock = self.batches.clock()
        waits = (*seconds, *(self.expectations.wait_seconds(uid, clock) for uid in uids))
        return min((each for each in waits if each is not None), default=None)
