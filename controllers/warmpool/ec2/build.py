"""Builds the EC2 backend of warm pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from controllers.shared.sources import NAMESPACES
from controllers.warmpool.backends import Backend
from controllers.warmpool.ec2.agent import NetworkAgentClient
from controllers.warmpool.ec2.backend import DisabledEC2Backend, EC2Backend
from controllers.warmpool.ec2.client import Boto3EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.poller import EC2Poller
from controllers.warmpool.ec2.settings import EC2Settings
from runtime.api import Api

IDENTITY = "kube-system"
"""The UID of this namespace identifies the cluster."""


@dataclass(frozen=True)
class EC2:
    backend: Backend = field(default_factory=DisabledEC2Backend)
    cache: InstanceCache = field(default_factory=lambda: InstanceCache(monotonic))
    poller: EC2Poller | None = None

    @property
    def sources(self) -> tuple[EC2Poller, ...]:
        """What must be listed before a missing instance means anything."""
        return (self.poller,) if self.poller is not None else ()

    @property
    def problem(self) -> str | None:
        """Why the instances cannot be listed."""
        return self.poller.problem if self.poller is not None else None

    async def run(self, on_change: Callable[[], None]) -> None:
        """Runs while this process is the leader. Calls `on_change` when EC2 becomes reachable or unreachable."""
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
