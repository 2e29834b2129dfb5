"""The controllers, as their container starts them: settings from the environment, then the parts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

from prometheus_client import CollectorRegistry

from controllers.certificates.build import build as certificates
from controllers.certificates.build import terms
from controllers.certificates.state import Terms
from controllers.defaulting.build import build as completion
from controllers.migrationpolicy.build import build as policy
from controllers.pool.build import build as pool
from controllers.replicaset.build import build as replicaset
from controllers.shared.component import Component
from controllers.warmpool.ec2.settings import EC2Settings
from controllers.warmpool.ec2.settings import read_settings as read_ec2_settings
from controllers.warmpool_and_claim import build as warm
from defaulter.contract import (
    SCHEDULABLE_LABEL,
    Defaulter,
    MachineTypeIndex,
    MACPolicy,
    Node,
    parse_mac_policy,
    read_node,
)
from kinds import disabled_kinds, meta
from kinds.claim import CLAIM
from kinds.kind import Kind
from kinds.migrationpolicy import MIGRATION_POLICY
from kinds.pool import POOL
from kinds.replicaset import REPLICA_SET
from kinds.warmpool import WARM_POOL
from runtime.api import Api
from runtime.events import EventRecorder
from runtime.informer import Informer, shared_reflectors
from runtime.leader_election import LeaderElector, LeaseLost
from runtime.metrics import Metrics
from runtime.resource import Resource
from runtime.secret_files import SecretFiles
from service import lifecycle, logs, settings
from service.json_api import with_endpoints
from service.server import health_app, serve

log = logging.getLogger(__name__)

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)

LEASE = "poolhouse-controllers"
CERTIFICATES_LEASE = "poolhouse-certificates"
"""another, because certificates are kept whatever else is missing: KubeVirt, for one"""
CONNECTIONS = 32
"""calls at once: as many as the API server serves well, few enough to leave room for others"""


@dataclass(frozen=True)
class Settings:
    host: str
    port: int
    tls: Path | None
    defaulter_url: str
    identity_seed: str
    macs: MACPolicy
    burst: int
    leader_election: bool
    off: frozenset[str]
    """plurals of the kinds that are not installed here, and so have no controller"""
    tls_secret: str
    namespace: str
    certificates: Terms | None
    """of the authority that we keep; None when somebody else does"""
    ec2: EC2Settings | None
    """where instances of EC2 are; None where there are none"""
    log_format: logs.Format
    log_level: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Raises ValueError with a sentence that names the variable."""
        host, port = settings.address(environment, "127.0.0.1:8080")
        burst = environment.get("POOLHOUSE_BURST", "250")
        if not burst.isdecimal() or int(burst) < 1:
            raise ValueError("POOLHOUSE_BURST: must be a whole number of at least 1")
        election = environment.get("POOLHOUSE_LEADER_ELECTION", "true")
        if election not in ("true", "false"):
            raise ValueError("POOLHOUSE_LEADER_ELECTION: must be true or false")
        return cls(
            host=host,
            port=port,
            tls=settings.tls(environment),
            defaulter_url=environment.get("POOLHOUSE_DEFAULTER_URL", ""),
            identity_seed=environment.get("POOLHOUSE_IDENTITY_SEED", ""),
            macs=parse_mac_policy(environment.get("POOLHOUSE_MACS", "deterministic")),
            burst=int(burst),
            leader_election=election == "true",
            off=disabled_kinds(environment),
            tls_secret=settings.tls_secret(environment),
            namespace=settings.namespace(environment, meta.NAMESPACE),
            certificates=terms(environment),
            ec2=read_ec2_settings(environment),
            log_format=settings.log_format(environment),
            log_level=settings.log_level(environment),
        )


async def run(settings: Settings) -> None:
    registry = CollectorRegistry()
    # Another after every start: a lease that a killed process left behind must not pass for our own.
    identity = f"{socket.gethostname()}-{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            await Api.connect(
                user_agent="poolhouse-controllers", max_connections=CONNECTIONS, metrics=Metrics(registry)
            )
        )
        nodes: Informer[Node] = Informer(api, NODES, read_node, label_selector=SCHEDULABLE_LABEL)
        machine_types = MachineTypeIndex()
        nodes.subscribe(machine_types.node_changed)
        defaulter = None
        if settings.defaulter_url:
            defaulter = await stack.enter_async_context(
                Defaulter(settings.defaulter_url, machine_types=machine_types.current)
            )
        events = EventRecorder(api, f"{meta.DOMAIN}/controllers")
        burst, seed = settings.burst, settings.identity_seed
        makers: list[tuple[tuple[Kind, ...], Callable[[], Component]]] = [
            ((POOL,), lambda: pool(api, events, defaulter, registry, burst, seed)),
            ((REPLICA_SET,), lambda: replicaset(api, events, defaulter, registry, burst, seed)),
            ((MIGRATION_POLICY,), lambda: policy(api, events, registry)),
            ((WARM_POOL, CLAIM), lambda: warm(api, events, defaulter, registry, seed, settings.ec2)),
        ]
        parts = [make() for of, make in makers if not settings.off & {kind.plural for kind in of}]
        if defaulter is not None:
            parts.append(completion(api, events, defaulter, settings.identity_seed, settings.macs))
        informers: list[Informer[Any]] = [informer for part in parts for informer in part.informers]
        if defaulter is not None:
            informers.append(nodes)

        def missing() -> Mapping[str, str] | None:
            return {i.resource.plural: i.problem or "not listed yet" for i in informers if not i.is_synced} or None

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part.work(), name=part.name)

        async with asyncio.TaskGroup() as group:
            group.create_task(events.run(), name="events")
            answers = {path: answer for part in parts for path, answer in part.answers.items()}
            health = with_endpoints(health_app(missing, registry), answers)
            if settings.certificates is not None:
                keeper = certificates(api, settings.namespace, settings.certificates)
                alone = LeaderElector(api, settings.namespace, CERTIFICATES_LEASE, identity)
                group.create_task(lead(alone, keeper.work), name=keeper.name)
            group.create_task(answer(api, settings, health), name="health")
            for reflector in shared_reflectors(informers):
                group.create_task(reflector.run(), name=f"reflector-{reflector.resource.plural}")
            for informer in informers:
                await informer.synced()
            if settings.leader_election:
                await lead(LeaderElector(api, settings.namespace, LEASE, identity), work)
            else:
                await work()


async def answer(api: Api, settings: Settings, app: Any) -> None:
    """Health, metrics and plans, from the moment there is a certificate to show."""
    async with asyncio.TaskGroup() as group:
        if settings.tls is not None and settings.tls_secret:
            files = SecretFiles(api, settings.namespace, settings.tls_secret, settings.tls)
            group.create_task(files.run(), name="certificate-files")
            await files.wait_until_written()
        await serve(app, settings.host, settings.port, settings.tls, on_certificate=api.metrics.set_certificate)


async def lead(lease: LeaderElector, work: Callable[[], Awaitable[None]]) -> NoReturn:
    """Works whenever the lease is ours."""
    while True:
        try:
            await lease.run(work)
        except LeaseLost as lost:
            log.error("%s", lost)
        await asyncio.sleep(1)


def main() -> int:
    try:
        settings = Settings.read(os.environ)
    except ValueError as error:
        print(f"poolhouse controllers: {error}", file=sys.stderr)
        return 2
    logs.configure("controllers", settings.log_format, settings.log_level)
    return lifecycle.run(lambda: run(settings))


if __name__ == "__main__":
    sys.exit(main())
