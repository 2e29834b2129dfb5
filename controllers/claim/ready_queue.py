"""The warm VMs that can be given to claims, by pool and in the order of preference.

Events of the stores keep the queue up to date. A VM that is reserved for a claim leaves it at once, before its event
arrives: a thousand claims at the same moment get a thousand different VMs.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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


class ReadyQueue:
    def __init__(self) -> None:
        self._vms: dict[str, dict[Variant, list[Entry]]] = defaultdict(dict)
        """sorted, by UID of the pool"""
        self._entries: dict[str, tuple[str, Variant, Entry]] = {}
        """with the UID of the pool, by UID of the VM"""
        self._reserved: set[str] = set()

    def count(self, pool_uid: str, accepts: Callable[[Variant], bool] = lambda variant: True) -> int:
        return sum(len(vms) for variant, vms in self._vms.get(pool_uid, {}).items() if accepts(variant))

    def candidates(
        self,
        pool_uid: str,
        is_current: Callable[[Variant], bool],
        accepts: Callable[[Variant], bool] = lambda variant: True,
    ) -> Iterator[Key]:
        """Keys of VMs: those that are handed over soonest first, of these those of the current template."""

        def preference(variant: Variant) -> tuple[int, bool]:
            return STANDBY_MODES.index(variant.standby), not is_current(variant)

        variants = self._vms.get(pool_uid, {})
        for _, equals in groupby(sorted(filter(accepts, variants), key=preference), preference):
            yield from (key for _, _, key in merge(*(variants[variant] for variant in equals)))

    def reset(self, vms: Iterable[WarmVM]) -> None:
        """Starts again from what the stores show, without reservations."""
        self._vms.clear()
        self._entries.clear()
        self._reserved.clear()
        for vm in vms:
            self.update(None, vm)

    def update(self, old: WarmVM | None, new: WarmVM | None) -> bool:
        """Follows an event; `new` is joined with its VMI and node. Returns whether its pool has one more ready VM.

        A VM that cannot be given away now is not counted either: else a claim at the end of the queue would get the
        VM of the claim that is next."""
        if old is not None and (new is None or (new.uid, new.pool_uid) != (old.uid, old.pool_uid)):
            self._reserved.discard(old.uid)
            self._remove(old.uid)
        if new is None:
            return False
        if not is_unclaimed(new):
            self._reserved.discard(new.uid)
        elif new.uid in self._reserved:
            return False
        known = new.uid in self._entries
        self._remove(new.uid)
        if not is_unclaimed(new) or why_not_in_standby(new):
            return False
        self._add(new)
        return not known

    def reserve(self, vm: WarmVM) -> None:
        """The VM is being given away: no other claim gets it."""
        self._reserved.add(vm.uid)
        self._remove(vm.uid)

    def restore(self, uid: str, vm: WarmVM | None) -> None:
        """The reservation may have failed. Offering a VM that was given away is harmless: its resourceVersion has
        changed, so the next reservation is refused."""
        self._reserved.discard(uid)
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
