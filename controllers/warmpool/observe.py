"""From the stores to a State. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from controllers.warmpool.backends import Backend
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.demand import Demand
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import VMHealth, WarmPoolSnapshot
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool, default_pool
from controllers.warmpool.warm_vm import WarmVM
from runtime.resource import Key
from runtime.store import Store


class Cache(Protocol):
    """What an informer says of itself."""

    @property
    def problem(self) -> str | None: ...


@dataclass(frozen=True)
class BackendView:
    """Those who hold machines, and what is seen of them."""

    machines: Backend
    all: Callable[[str], list[WarmVM]]
    """every machine that carries a pool's UID"""
    named: Callable[[Key], list[WarmVM]]
    """every machine that carries a pool's name"""
    sights: tuple[Cache, ...] = ()

    @property
    def blind(self) -> str:
        """Why what is seen may be old, or nothing. Nothing is concluded then: what failed last would fail again and
        again."""
        return next((sight.problem for sight in self.sights if sight.problem), "")


def virtual(queues: WarmVMCache, machines: Backend, sights: tuple[Cache, ...]) -> BackendView:
    return BackendView(machines, queues.all, queues.named, sights)


@dataclass(frozen=True)
class WarmPoolStores:
    pools: Store[WarmPool | InvalidWarmPool]
    """indexed `namespace` and `uid`"""
    demand: Demand

    def default(self, namespace: str) -> WarmPool | None:
        return default_pool(self.pools.by("namespace", namespace))

    def of(self, uid: str) -> WarmPool | InvalidWarmPool | None:
        return next(iter(self.pools.by("uid", uid)), None)


def observe(
    stores: WarmPoolStores,
    pool: WarmPool,
    fleet: BackendView,
    look: Callable[[WarmPool, tuple[WarmVM, ...]], Mapping[str, VMHealth]],
    *,
    expectations_met: bool,
    failures: FailureBackoff,
    tokens: float,
    seed: str,
) -> WarmPoolSnapshot:
    """What is known of the pool at this moment, at the cost of its own size."""
    machines = tuple(fleet.all(pool.uid))
    return WarmPoolSnapshot(
        pool=pool,
        vms=machines,
        health=look(pool, machines),
        queued_claims=stores.demand.queued(pool.uid),
        creating_for_claims=stores.demand.making(pool.uid),
        expectations_met=expectations_met,
        failures=failures,
        tokens=tokens,
        seed=seed,
        default_pool=stores.default(pool.namespace),
    )
