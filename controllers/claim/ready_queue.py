"""The warm VMs that can be given to claims, in the order of preference.

Events of the stores keep the queues up to date. A VM that is reserved for a claim leaves its queue at once, before its
event arrives: a thousand claims at the same moment get a thousand different VMs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby

from controllers.warmpool.warm_vm import STANDBY_MODES, StandbyMode, WarmVM, why_not_in_standby
from kinds.warm_states import WarmState
from runtime.backoff import hash_fraction
from runtime.resource import Key


@dataclass(frozen=True, slots=True)
class Variant:
    """VMs of one variant are interchangeable."""

    standby: StandbyMode
    placement: str
    template_hash: str


Entry = tuple[float, str, Key]
"""A hash of the UID, which mixes VMs of equal preference the same way each time, then the UID and the key."""


def is_unclaimed(vm: WarmVM) -> bool:
    """Whether the VM's own labels and owner let its pool give it away."""
    available = vm.state is WarmState.READY and not (vm.claim_uid or vm.deleting or vm.orphaned)
    return available and vm.owned_by(vm.pool_uid)


@dataclass
class ReadyQueue:
    """The VMs of one pool that can be given away now."""

    _vms: dict[Variant, list[Entry]] = field(default_factory=dict)
    """sorted"""
    _entries: dict[str, tuple[Variant, Entry]] = field(default_factory=dict)
    """by UID"""

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, accepts: Callable[[Variant], bool]) -> int:
        return sum(len(vms) for variant, vms in self._vms.items() if accepts(variant))

    def add(self, vm: WarmVM) -> None:
        self.remove(vm.uid)
        variant, entry = Variant(vm.standby, vm.placement, vm.template_hash), (hash_fraction(vm.uid), vm.uid, vm.key)
        self._entries[vm.uid] = variant, entry
        insort(self._vms.setdefault(variant, []), entry)

    def remove(self, uid: str) -> None:
        if uid not in self._entries:
            return
        variant, entry = self._entries.pop(uid)
        vms = self._vms[variant]
        del vms[bisect_left(vms, entry)]
        if not vms:
            del self._vms[variant]

    def candidates(
        self, is_current: Callable[[Variant], bool], accepts: Callable[[Variant], bool] = lambda variant: True
    ) -> Iterator[Key]:
        """Keys of VMs: those that are handed over soonest first, of these those of the current template."""

        def preference(variant: Variant) -> tuple[int, bool]:
            return STANDBY_MODES.index(variant.standby), not is_current(variant)

        for _, equals in groupby(sorted(filter(accepts, self._vms), key=preference), preference):
            yield from (key for _, _, key in merge(*(self._vms[variant] for variant in equals)))


class ReadyQueues:
    """The ready queues of all pools, by UID of the pool."""

    def __init__(self) -> None:
        self._queues: dict[str, ReadyQueue] = {}
        self._reserved: set[str] = set()

    def of(self, pool_uid: str) -> ReadyQueue:
        return self._queues.get(pool_uid) or ReadyQueue()

    def reset(self, vms: Iterable[WarmVM]) -> None:
        """Starts again from what the stores show, without reservations."""
        self._reserved.clear()
        self._queues.clear()
        for vm in vms:
            self.update(None, vm)

    def update(self, old: WarmVM | None, new: WarmVM | None) -> bool:
        """Follows an event; `new` is joined with its VMI and node. Returns whether its pool has one more ready VM.

        A VM that cannot be given away now is not counted either: else a claim at the end of the queue would get the
        VM of the claim that is next."""
        if old is not None and (new is None or (new.uid, new.pool_uid) != (old.uid, old.pool_uid)):
            self._reserved.discard(old.uid)
            self._remove(old)
        if new is None:
            return False
        if not is_unclaimed(new):
            self._reserved.discard(new.uid)
        elif new.uid in self._reserved:
            return False
        if not is_unclaimed(new) or why_not_in_standby(new):
            self._remove(new)
            return False
        queue = self._queues.setdefault(new.pool_uid, ReadyQueue())
        before = len(queue)
        queue.add(new)
        return len(queue) > before

    def reserve(self, vm: WarmVM) -> None:
        """The VM is being given away: no other claim gets it."""
        self._reserved.add(vm.uid)
        self._remove(vm)

    def restore(self, uid: str, vm: WarmVM | None) -> None:
        """The reservation may have failed. Offering a VM that was given away is harmless: its resourceVersion has
        changed, so the next reservation is refused."""
        self._reserved.discard(uid)
        if vm is not None and vm.uid == uid:
            self.update(None, vm)

    def _remove(self, vm: WarmVM) -> None:
        queue = self._queues.get(vm.pool_uid)
        if queue is not None:
            queue.remove(vm.uid)
            if not len(queue):
                del self._queues[vm.pool_uid]
