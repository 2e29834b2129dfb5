"""The parts of instances of EC2, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from controllers.warmpool.backends import Backend
from controllers.warmpool.ec2.agent import NetworkAgentClient
from controllers.warmpool.ec2.backend import EC2Backend
from controllers.warmpool.ec2.client import Boto3EC2Client
from controllers.warmpool.ec2.instance_cache import InstanceCache
from controllers.warmpool.ec2.off import DisabledEC2Backend
from controllers.warmpool.ec2.poller import EC2Poller
from controllers.warmpool.ec2.settings import EC2Settings, read_settings
from controllers.warmpool.ec2.tags import is_instance
from runtime.api import Api
from runtime.resource import Resource

__all__ = ["EC2", "EC2Settings", "build_ec2", "is_instance", "read_settings"]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
IDENTITY = "kube-system"
"""The UID of this namespace is as good as one of the cluster."""


@dataclass(frozen=True)
class EC2:
    machines: Backend = field(default_factory=DisabledEC2Backend)
    shown: InstanceCache = field(default_factory=lambda: InstanceCache(monotonic))
    scan: EC2Poller | None = None

    @property
    def sights(self) -> tuple[EC2Poller, ...]:
        """What has to be seen before anything is concluded of what is not there."""
        return (self.scan,) if self.scan is not None else ()

    @property
    def problem(self) -> str | None:
        """Why they cannot be seen."""
        return self.scan.problem if self.scan is not None else None

    async def run(self, seen: Callable[[], None]) -> None:
        """What only a leader does. Calls `seen` when the way to EC2 opens or closes."""
        if self.scan is not None:
            self.scan.seen = seen
            await self.scan.run()


def build_ec2(api: Api, settings: EC2Settings | None, policy: Callable[[str], str | None]) -> EC2:
    if settings is None:
        return EC2()
    cloud, shown, cluster = Boto3EC2Client(settings), InstanceCache(monotonic), _identity(api)
    instances = EC2Backend(cloud, NetworkAgentClient(), shown, settings, cluster, api.now)
    scan = EC2Poller(cloud, shown, instances, api, cluster, policy, settings.period_seconds, monotonic)
    return EC2(instances, shown, scan)


def _identity(api: Api) -> Callable[[], Awaitable[str]]:
    found: list[str] = []

    async def cluster() -> str:
        if not found:
            found.append((await api.get(NAMESPACES, None, IDENTITY))["metadata"]["uid"])
        return found[0]

    return cluster
