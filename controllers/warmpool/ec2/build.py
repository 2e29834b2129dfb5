"""The parts of instances of EC2, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

from controllers.warmpool.backends import Machines
from controllers.warmpool.ec2.agent import Network
from controllers.warmpool.ec2.cloud import Aws
from controllers.warmpool.ec2.instances import Instances
from controllers.warmpool.ec2.off import Off
from controllers.warmpool.ec2.scan import Scan
from controllers.warmpool.ec2.settings import Terms, terms
from controllers.warmpool.ec2.shown import Shown
from controllers.warmpool.ec2.tags import is_instance
from runtime.api import Api
from runtime.resource import Resource

__all__ = ["Held", "Terms", "hold", "is_instance", "terms"]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
IDENTITY = "kube-system"
"""The UID of this namespace is as good as one of the cluster."""


@dataclass(frozen=True)
class Held:
    machines: Machines = field(default_factory=Off)
    shown: Shown = field(default_factory=lambda: Shown(monotonic))
    scan: Scan | None = None

    @property
    def sights(self) -> tuple[Scan, ...]:
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


def hold(api: Api, terms: Terms | None, policy: Callable[[str], str | None]) -> Held:
    if terms is None:
        return Held()
    cloud, shown, cluster = Aws(terms), Shown(monotonic), _identity(api)
    instances = Instances(cloud, Network(), shown, terms, cluster, api.now)
    scan = Scan(cloud, shown, instances, api, cluster, policy, terms.period_seconds, monotonic)
    return Held(instances, shown, scan)


def _identity(api: Api) -> Callable[[], Awaitable[str]]:
    found: list[str] = []

    async def cluster() -> str:
        if not found:
            found.append((await api.get(NAMESPACES, None, IDENTITY))["metadata"]["uid"])
        return found[0]

    return cluster
