"""The warm VMs that claims can get, by pool and in order of preference.

Events of the stores update the queue. A reserved VM leaves the queue before its event arrives, so that concurrent
claims get different VMs.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby

from controllers.warmpool.warm_vm import STANDBY_MODES, StandbyMode, WarmVM, why_not_in_standby
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.backoff import hash_fraction
from poolhouse.runtime.resource import Key


@dataclass(frozen=True, slots=True)
class Variant:
    """VMs with the same variant are interchangeable."""

    standby: StandbyMode
    placement: str
    template_hash: str


Entry = tuple[float, str, Key]
"""A hash of the UID as a stable random order, the UID, and the key."""


def is_unclaimed(vm: WarmVM) -> bool:
    """Whether the VM's labels and owner reference allow its pool to give it to a claim."""
    available = vm.state is WarmState.READY and not (vm.claim_uid or vm.deleting or vm.orphaned)
    return available and vm.owned_by(vm.pool_uid)


class ReadyQueue:
    def __init__(self, recorded: Callable[[WarmVM], bool] = lambda vm: True) -> None:
        """`recorded` says whether the pool's status has the VM, so that labels alone put no VM into the queue."""
        self._recorded = recorded
        self._vms: dict[str, dict[Variant, list[Entry]]] = defaultdict(dict)
        """sorted entries, by UID of the pool and variant"""
        self._entries: dict[str, tuple[str, Variant, Entry]] = {}
        """UID of the pool, variant and entry, by UID of the VM"""
        self._reserved: dict[str, str] = {}
        """UID of the pool, by UID of the VM"""

    def count(self, pool_uid: str, accepts: Callable[[Variant], bool] = lambda variant: True) -> int:
        return sum(len(vms) for variant, vms in self._vms.get(pool_uid, {}).items() if accepts(variant))

    def reserved(self, pool_uid: str) -> int:
        """The number of VMs that claims have taken and that the store still shows as the pool's."""
        return sum(each == pool_uid for each in self._reserved.values())

    def candidates(
        self,
        pool_uid: str,
        is_current: Callable[[Variant], bool],
        accepts: Callable[[Variant], bool] = lambda variant: True,
    ) -> Iterator[Key]:
        """Keys of VMs: first by standby mode, shortest activation first, then VMs of the current template."""

        def preference(variant: Variant) -> tuple[int, bool]:
            return STANDBY_MODES.index(variant.standby), not is_current(variant)

        variants = self._vms.get(pool_uid, {})
        for _, equals in groupby(sorted(filter(accepts, variants), key=preference), preference):
            yield from (key for _, _, key in merge(*(variants[variant] for variant in equals)))

    def reset(self, vms: Iterable[WarmVM]) -> None:
        """Rebuilds the queue from VMs of the stores, without reservations."""
        self._vms.clear()
        self._entries.clear()
        self._reserved.clear()
        for vm in vms:
            self.update(None, vm)

    def update(self, old: WarmVM | None, new: WarmVM | None) -> bool:
        """Applies an event. `new` is joined with its VMI and node. Returns True if a VM of the pool became ready.

        The queue omits a VM that no claim can get now. If it counted, a claim at the end could overtake the next
        claim."""
        if old is not None and (new is None or (new.uid, new.pool_uid) != (old.uid, old.pool_uid)):
            self._reserved.pop(old.uid, None)
            self._remove(old.uid)
        if new is None:
            return False
        if not is_unclaimed(new):
            self._reserved.pop(new.uid, None)
        elif new.uid in self._reserved:
            return False
        known = new.uid in self._entries
        self._remove(new.uid)
        if not is_unclaimed(new) or why_not_in_standby(new) or not self._recorded(new):
            return False
        self._add(new)
        return not known

    def reserve(self, vm: WarmVM) -> None:
        """Removes the VM from the queue until its reservation is cancelled or its event arrives."""
        self._reserved[vm.uid] = vm.pool_uid
        self._remove(vm.uid)

    def restore(self, uid: str, vm: WarmVM | None) -> None:
        """Cancels a reservation that may have failed. If the VM has a claim, its resourceVersion has changed, and the
        next reservation is refused."""
        self._reserved.pop(uid, None)
        if vm is not None and vm.uid == uid:
            self.update(None, vm)

    def _add(self, vm: WarmVM) -> None:
        variant, entry = Variant(vm.standby, vm.placement, vm.template_hash), (hash_fraction(vm.uid), vm.uid, vm.key)
        self._entries[vm.uid] = vm.pool_uid, variant, entry
        insort(self._vms[vm.pool_uid].setdefault(variant, []), entry)

    def _remove(self, uid: str) -> None:
        if uid not in self._entries:
            return
        pool_uid, variant, entry = self._entries.pop(uid)
        vms = self._vms[pool_uid][variant]
        del vms[bisect_left(vms, entry)]
        if not vms:
            del self._vms[pool_uid][variant]
        if not self._vms[pool_uid]:
            del self._vms[pool_uid]
