"""Takes the snapshot of a warm pool from the caches."""

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
from runtime.store import Store


class HasProblem(Protocol):
    """An informer, or the poller of EC2."""

    @property
    def problem(self) -> str | None: ...


@dataclass(frozen=True)
class BackendView:
    """A backend with the cache of its VMs."""

    backend: Backend
    cache: WarmVMCache
    sources: tuple[HasProblem, ...] = ()

    @property
    def problem(self) -> str:
        """Why the cache may be old or empty, or an empty string. The controller decides nothing from such a cache."""
        return next((source.problem for source in self.sources if source.problem), "")


@dataclass(frozen=True)
class WarmPoolStores:
    pools: Store[WarmPool | InvalidWarmPool]
    demand: Demand

    def default(self, namespace: str) -> WarmPool | None:
        return default_pool(self.pools.by("namespace", namespace))

    def with_uid(self, uid: str) -> WarmPool | InvalidWarmPool | None:
        return next(iter(self.pools.by("uid", uid)), None)


def observe(
    stores: WarmPoolStores,
    pool: WarmPool,
    view: BackendView,
    observe_health: Callable[[WarmPool, tuple[WarmVM, ...]], Mapping[str, VMHealth]],
    *,
    expectations_met: bool,
    failures: FailureBackoff,
    tokens: float,
    seed: str,
) -> WarmPoolSnapshot:
    vms = tuple(view.cache.of_pool(pool.uid))
    return WarmPoolSnapshot(
        pool=pool,
        vms=vms,
        health=observe_health(pool, vms),
        queued_claims=stores.demand.queued(pool.uid),
        creating_for_claims=stores.demand.creating(pool.uid),
        expectations_met=expectations_met,
        failures=failures,
        tokens=tokens,
        seed=seed,
        default_pool=stores.default(pool.namespace),
    )
