"""Lists the instances of this cluster at fixed intervals, and terminates instances of deleted pools.

The garbage collector of Kubernetes deletes a pool's VMs, but not EC2 instances. A pool may be deleted while EC2 is
unreachable. The tags of an instance therefore store whether the instance outlives its pool.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from controllers.warmpool.agent import NetworkAgentClient
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import Backend, Change, WriteConflict
from controllers.warmpool.ec2.backend import DisabledEC2Backend, EC2Backend
from controllers.warmpool.ec2.client import Boto3EC2Client, EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.tags import CLUSTER, OUTLIVES_POOL
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool.warm_vm import NO_OWNER, POOL_KIND, WarmVM
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import NAMESPACES

log = logging.getLogger(__name__)

LISTED_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
MAX_FILTER_VALUES = 200
NOT_LISTED = "the EC2 instances are not listed yet"
RETRIES = Backoff(base_seconds=1, cap_seconds=60)


@dataclass
class EC2Poller:
    client: EC2Client
    cache: InstanceCache
    backend: EC2Backend
    api: Api
    cluster: Callable[[], Awaitable[str]]
    deletion_policy: Callable[[str], str | None]
    """returns the policy of the pool with this UID: an empty string for an invalid spec, None for an unknown pool; the
    poller then reads the pool from the API"""
    period_seconds: float
    clock: Callable[[], float]
    on_change: Callable[[], None] = lambda: None
    """called when `problem` changes, so that the pools are reconciled"""
    problem: str | None = NOT_LISTED
    """why the cache may be stale; the controller neither counts nor terminates instances while there is a problem"""
    error: Exception | None = None
    """the error of `problem`; None also before the first answer"""
    _failures: int = 0

    async def run(self) -> None:
        self._set_problem(NOT_LISTED)  # the cache may be from an earlier term as leader
        while True:
            pause = await self.poll()
            await asyncio.sleep(pause)

    async def poll(self) -> float:
        """Lists all instances. Returns the seconds until the next poll."""
        asked_at = self.clock()
        try:
            cluster = await self.cluster()
        except (ApiError, TimeoutError) as error:
            return self._failed("the UID of the namespace kube-system cannot be read", error)
        try:
            filters = {f"tag:{CLUSTER}": [cluster], "instance-state-name": LISTED_STATES}
            found = await self.client.describe(filters)
            # EC2 does not list these instances yet, or another client has terminated them.
            if missing := self.cache.missing_writes(found)[:MAX_FILTER_VALUES]:
                found += await self.client.describe({"instance-id": missing})
        except (ApiError, TimeoutError) as error:
            return self._failed("the EC2 instances cannot be listed", error)
        self._failures = 0
        log_event(log, "VMChecked", f"listed {len(found)} EC2 instances", level=logging.DEBUG)
        self.cache.replace(found, asked_at)
        self._set_problem(None)
        for vm in self.cache.vms.all():
            if vm.owner.kind == POOL_KIND and not vm.deleting:
                await self._reconcile(vm)
        return self.period_seconds

    def _failed(self, what: str, error: Exception) -> float:
        """Records the error. Returns the seconds until the next attempt."""
        self._failures += 1
        self._set_problem(f"{what}: {error}", error)
        return RETRIES.delay(self._failures, "ec2")

    def _set_problem(self, problem: str | None, error: Exception | None = None) -> None:
        self.error = error
        if problem == self.problem:
            return
        if problem:
            log.warning("%s", problem)
        elif self.problem:
            log.info("the EC2 instances are listed: this cluster has %d", len(self.cache.vms))
        self.problem = problem
        self.on_change()

    async def _reconcile(self, vm: WarmVM) -> None:
        policy, outlives = self.deletion_policy(vm.owner.uid), OUTLIVES_POOL in vm.labels
        try:
            if policy is not None:
                if policy and outlives != (policy == "Orphan"):
                    change = Change(labels={OUTLIVES_POOL: None if outlives else "true"})
                    await self.backend.change(vm, change)
            elif not await self._pool_exists(vm):
                if outlives:
                    await self._orphan(vm)
                else:
                    await self.backend.terminate(vm, "its pool is gone")
        except WriteConflict:  # the next poll retries
            return
        except ApiError as error:
            log.warning("%s: %s", vm.name, error)

    async def _orphan(self, vm: WarmVM) -> None:
        await self.backend.change(vm, Change(owner=NO_OWNER, labels={meta.ORPHANED: "PoolDeleted"}))
        message = f"{vm.name} is orphaned: its pool with deletionPolicy Orphan was deleted"
        log_event(log, "VMStateChanged", message, about=vm)

    async def _pool_exists(self, vm: WarmVM) -> bool:
        found = await find(self.api, WARM_POOLS, vm.namespace, vm.owner.name)
        return found is not None and bool(found["metadata"]["uid"] == vm.owner.uid)


IDENTITY = "kube-system"
"""The UID of this namespace is the ID of the cluster."""


@dataclass(frozen=True)
class EC2:
    backend: Backend = field(default_factory=DisabledEC2Backend)
    cache: InstanceCache = field(default_factory=lambda: InstanceCache(monotonic))
    poller: EC2Poller | None = None

    @property
    def sources(self) -> tuple[EC2Poller, ...]:
        """The sources that must have listed all instances before the controller treats an instance as missing."""
        return (self.poller,) if self.poller is not None else ()

    @property
    def problem(self) -> str | None:
        """Why the instances cannot be listed, or None."""
        return self.poller.problem if self.poller is not None else None

    async def run(self, on_change: Callable[[], None]) -> None:
        """Polls while this process is the leader. Calls `on_change` when EC2 becomes reachable or unreachable."""
        if self.poller is not None:
            self.poller.on_change = on_change
            await self.poller.run()


def build_ec2(api: Api, settings: EC2Settings | None, deletion_policy: Callable[[str], str | None]) -> EC2:
    if settings is None:
        return EC2()
    client, cache, cluster = Boto3EC2Client(settings), InstanceCache(monotonic), _cluster_id(api)
    backend = EC2Backend(client, NetworkAgentClient(), cache, settings, cluster, api.now)
    poller = EC2Poller(client, cache, backend, api, cluster, deletion_policy, settings.period_seconds, monotonic)
    return EC2(backend, cache, poller)


def _cluster_id(api: Api) -> Callable[[], Awaitable[str]]:
    found: list[str] = []

    async def cluster() -> str:
        if not found:
            found.append((await api.get(NAMESPACES, None, IDENTITY))["metadata"]["uid"])
        return found[0]

    return cluster
