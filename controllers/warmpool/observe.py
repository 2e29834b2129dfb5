"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from controllers.warmpool.backends import Machines
from controllers.warmpool.cache import Queues
from controllers.warmpool.demand import Demand
from controllers.warmpool.rate_limit import Failures
from controllers.warmpool.snapshot import State, Vital
from controllers.warmpool.warm_pool import Misfit, Pool, elected
from controllers.warmpool.warm_vm import Machine
from runtime.resource import Key
from runtime.store import Store


class Sight(Protocol):
    """What an informer says of itself."""

    @property
    def problem(self) -> str | None: ...


@dataclass(frozen=True)
class Fleet:
    """Those who hold machines, and what is seen of them."""

    machines: Machines
    all: Callable[[str], list[Machine]]
    """every machine that carries a pool's UID"""
    named: Callable[[Key], list[Machine]]
    """every machine that carries a pool's name"""
    sights: tuple[Sight, ...] = ()

    @property
    def blind(self) -> str:
        """Why what is seen may be old, or nothing. Nothing is concluded then: what failed last would fail again and
        again."""
        return next((sight.problem for sight in self.sights if sight.problem), "")


def virtual(queues: Queues, machines: Machines, sights: tuple[Sight, ...]) -> Fleet:
    return Fleet(machines, queues.all, queues.named, sights)


@dataclass(frozen=True)
class Stores:
    pools: Store[Pool | Misfit]
    """indexed `namespace` and `uid`"""
    demand: Demand

    def default(self, namespace: str) -> Pool | None:
        return elected(self.pools.by("namespace", namespace))

    def of(self, uid: str) -> Pool | Misfit | None:
        return next(iter(self.pools.by("uid", uid)), None)


def observe(
    stores: Stores,
    pool: Pool,
    fleet: Fleet,
    look: Callable[[Pool, tuple[Machine, ...]], Mapping[str, Vital]],
    *,
    settled: bool,
    failures: Failures,
    tokens: float,
    seed: str,
) -> State:
    """What is known of the pool at this moment, at the cost of its own size."""
    machines = tuple(fleet.all(pool.uid))
    return State(
        pool=pool,
        machines=machines,
        vitals=look(pool, machines),
        demand=stores.demand.queued(pool.uid),
        making=stores.demand.making(pool.uid),
        settled=settled,
        failures=failures,
        tokens=tokens,
        seed=seed,
        default=stores.default(pool.namespace),
    )
