"""Finds the replica sets that orphans concern, beside the event loop: a namespace may have thousands of sets, whose
selectors may be long, and each change of an orphan concerns all that match it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from controllers.replicaset.observe import InvalidReplicaSet, ReplicaSet
from controllers.shared.planner import Planner
from controllers.shared.vmi import VMI
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.no_metrics import NO_METRICS
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store

GATHER_SECONDS = 0.1
GATHER_FACTOR = 5.0
"""The delay that joins changes, as a multiple of the time that the last comparison took, if that is longer."""
MAX_COMPARISONS = 10_000
"""With more, all sets of the namespace are reconciled, which costs less than to compare them: half a second, if
selectors are as long as they may be."""

Labels = frozenset[tuple[str, str]]
AnySet = ReplicaSet | InvalidReplicaSet


@dataclass
class Adopters:
    sets: Store[AnySet]
    planner: Planner
    enqueue: Callable[[Key, float], None] = lambda key, seconds: None
    """enqueues a set"""
    _orphans: dict[Key, dict[Labels, VMI]] = field(default_factory=dict)
    """changed orphans by their labels, by the key of the namespace"""

    def __post_init__(self) -> None:
        self._controller: Controller[Key] = Controller("adopters", self.reconcile, workers=1, metrics=NO_METRICS)

    async def run(self) -> None:
        await self._controller.run()

    def note(self, orphan: VMI) -> None:
        """An orphan appears, changes or is gone."""
        key = orphan.namespace, ""
        self._orphans.setdefault(key, {})[frozenset(orphan.labels.items())] = orphan
        seconds = self.planner.seconds(("adopters", key))
        self._controller.enqueue(key, max(GATHER_SECONDS, GATHER_FACTOR * seconds))

    async def reconcile(self, key: Key) -> None:
        orphans, sets = [*self._orphans.pop(key, {}).values()], self.sets.by("namespace", key[0])
        if len(orphans) * len(sets) > MAX_COMPARISONS:
            found = [each.key for each in sets]
        else:
            found = await self.planner.run(("adopters", key), adopters, sets, orphans)
        for each in found:
            self.enqueue(each, 0.0)


def adopters(sets: Iterable[AnySet], orphans: Sequence[VMI]) -> list[Key]:
    """The sets whose selector matches an orphan. If several sets match, the first set that writes adopts the VMI."""
    able = (each for each in sets if isinstance(each, ReplicaSet) and not each.deleting)
    return [each.key for each in able if any(map(each.selects, orphans))]
