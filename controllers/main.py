"""The process of the controllers: reads the settings and runs the components."""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, NoReturn, Self
from uuid import uuid4

from prometheus_client import CollectorRegistry
from pydantic import BeforeValidator

from controllers.certificates.controller import build as certificates
from controllers.certificates.observe import CertificatePolicy
from controllers.certificates.settings import read_policy as read_certificate_policy
from controllers.defaulting.controller import build as defaulting
from controllers.migrationpolicy.controller import build as policy
from controllers.pool.component import build as pool
from controllers.replicaset.controller import build as replicaset
from controllers.sets.simulation import authenticate
from controllers.shared.component import Component, ControllerContext
from controllers.shared.planner import SWITCH_SECONDS
from controllers.shared.replica_limits import ReplicaLimits
from controllers.virtualnode.controller import build as virtual_node
from controllers.virtualnode.settings import VirtualNodeSettings, read_virtual_node
from controllers.warmpool.agent import NetworkAgentClient
from controllers.warmpool.agent_authority import AgentAuthority
from controllers.warmpool.ec2.settings import EC2Settings, read_ec2_settings
from controllers.warmpool.vm_agent import VMAgents
from controllers.warmpool_and_claim import build as warm
from defaulter.contract import SCHEDULABLE_LABEL, Defaulter, MACPolicy, Node, NodeIndex, read_node
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import DISABLED_KINDS, disabled_kinds, meta, replica_limits
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.api.kubevirt import cluster_settings
from poolhouse.runtime.api import Api
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.informer import Informer, shared_reflectors
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.leader_election import LeaderElector, LeaseLost
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import KUBEVIRTS, NODES
from poolhouse.runtime.secret_files import SecretFiles
from poolhouse.service import lifecycle
from poolhouse.service.health import health_app
from poolhouse.service.json_api import JsonApi
from poolhouse.service.prometheus import Prometheus, PrometheusServer
from poolhouse.service.prometheus import connect as connect_prometheus
from poolhouse.service.server import serve
from poolhouse.service.settings import IdentitySettings, ListenAddress, ServiceSettings, listen_setting, setting, split

log = logging.getLogger(__name__)

LEASE = meta.CONTROLLERS
LEASE_SECONDS = 8.0
RENEW_DEADLINE_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""Times of the Lease. The next replica works within 10 seconds after a crash of the leader. A leader that loses the
Lease in an outage of the API server loses little: its stores stay, and it works again as soon as it has the Lease."""
CERTIFICATES_LEASE = "poolhouse-certificates"
"""The certificates have their own Lease, so that they are renewed while other components wait for KubeVirt."""
KUBEVIRT_SECONDS = 10.0
"""Time at the start to read the KubeVirt object. Without the object, KubeVirt's own defaults apply."""
CONNECTIONS = 32
"""Maximum number of concurrent calls, which leaves capacity of the API server for other clients."""
CONNECTIONS_PER_NAMESPACE = 24
"""Fewer than all, so that calls that take long, such as those that wait for another webhook, never stop all others."""


def _parse_kinds_off(value: Any) -> Any:
    return disabled_kinds({DISABLED_KINDS: value}) if isinstance(value, str) else value


def _parse_networks(value: Any) -> Any:
    """A network may have the address of one of its hosts, as in a NetworkPolicy."""
    if not isinstance(value, str):
        return value
    return tuple(ip_network(each, strict=False) for each in split(value))


class Settings(ServiceSettings, IdentitySettings):
    listen: ListenAddress = listen_setting("127.0.0.1:8080")
    defaulter_url: str = setting("POOLHOUSE_DEFAULTER_URL", "", "The defaulter. Empty: VMs get no hardware defaults.")
    macs: MACPolicy = setting(
        "POOLHOUSE_MACS", "deterministic", "MAC addresses of interfaces without one. `libvirt` gives random ones."
    )
    read_domains: Annotated[frozenset[str], BeforeValidator(split)] = setting(
        "POOLHOUSE_READ_DOMAINS",
        frozenset(),
        "Namespaces, separated by commas, or `*`, in which the controllers read the PCI addresses of running VMs in the"
        " launcher Pods. They need `pods/exec` there.",
    )
    burst: int = setting("POOLHOUSE_BURST", 250, "VMs that one pool creates or updates at the same time.", ge=1)
    max_replicas: int = setting(
        "POOLHOUSE_MAX_REPLICAS",
        replica_limits.DEFAULT_MAX_REPLICAS,
        replica_limits.SETTING,
        ge=1,
        le=replica_limits.UNLIMITED,
    )
    leader_election: bool = setting(
        "POOLHOUSE_LEADER_ELECTION", True, "Whether only the holder of the Lease works. `false` for a single process."
    )
    prometheus_url: str = setting(
        "POOLHOUSE_PROMETHEUS_URL",
        "",
        "The Prometheus, or compatible server, that analyses of pool updates query. Empty: queries are not possible.",
    )
    prometheus_dir: Path | None = setting(
        "POOLHOUSE_PROMETHEUS_DIR",
        None,
        "Directory with `token`, a bearer token, and `ca.crt` for Prometheus. Both are optional.",
    )
    machine_cidrs: Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_parse_networks)] = setting(
        "POOLHOUSE_MACHINE_CIDRS",
        (),
        "Networks outside the Pod network in which VMs have addresses, separated by commas. Readiness checks connect to"
        " them and to the VM's own Pod only.",
    )
    agent_proxy: str = setting(
        "POOLHOUSE_AGENT_PROXY",
        "",
        "Address of an HTTP proxy that reaches the agents in VMs, such as 127.0.0.1:3128. Empty: a direct connection.",
    )
    metrics_token: Path | None = setting(
        "POOLHOUSE_METRICS_TOKEN_FILE",
        None,
        "File with the bearer token that scrapes of `/metrics` must have. Empty: everybody may scrape.",
    )
    kinds_off: Annotated[frozenset[str], BeforeValidator(_parse_kinds_off)] = setting(
        DISABLED_KINDS,
        frozenset(),
        "Plurals of kinds that are not installed and have no controller, separated by commas.",
    )


@dataclass(frozen=True)
class Configuration:
    settings: Settings
    certificates: CertificatePolicy | None = None
    """None if another program renews the certificates"""
    ec2: EC2Settings | None = None
    """None if EC2 is disabled"""
    prometheus: PrometheusServer | None = None
    """None if the queries of analyses are errors"""
    node: VirtualNodeSettings | None = None
    """None if there is no virtual node"""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Raises ValueError, whose message names the variable."""
        settings = Settings.read(environment)
        return cls(
            settings,
            read_certificate_policy(environment),
            read_ec2_settings(environment),
            PrometheusServer.parse("POOLHOUSE_PROMETHEUS_URL", settings.prometheus_url, settings.prometheus_dir),
            read_virtual_node(environment),
        )


async def run(configuration: Configuration) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    settings, registry = configuration.settings, CollectorRegistry()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            await Api.connect(
                user_agent=meta.CONTROLLERS,
                max_connections=CONNECTIONS,
                max_per_namespace=CONNECTIONS_PER_NAMESPACE,
                metrics=Metrics(registry),
            )
        )
        events, limits = EventRecorder(api, f"{meta.DOMAIN}/controllers"), ReplicaLimits(api, settings.max_replicas)
        nodes: Informer[Node] = Informer(api, NODES, read_node, label_selector=SCHEDULABLE_LABEL)
        kubevirts: OptionalInformer[Json] = OptionalInformer(api, KUBEVIRTS, cluster_settings.excerpt)
        context = ControllerContext(
            api=api,
            events=events,
            registry=registry,
            defaulter=await stack.enter_async_context(_defaulter(settings.defaulter_url, api, nodes, kubevirts)),
            seed=settings.seed,
            burst=settings.burst,
            limits=limits,
        )
        prometheus = await stack.enter_async_context(connect_prometheus(configuration.prometheus))
        components = build(configuration, context, prometheus)
        informers: list[Informer[Any]] = [limits.informer, *(each for part in components for each in part.informers)]
        if context.defaulter is not None:
            informers.append(nodes)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(events.run(), name="events")
        # Each process has a new identity, so that it does not take over the Lease of its killed predecessor by mistake.
        elect = partial(LeaderElector, api, settings.namespace, identity=f"{socket.gethostname()}-{uuid4().hex[:8]}")
        if configuration.certificates is not None:
            keeper = certificates(api, settings.namespace, configuration.certificates)
            group.create_task(lead(elect(CERTIFICATES_LEASE), keeper.work), name=keeper.name)
        health = health_app(partial(_missing, informers), registry, settings.metrics_token)
        answers = {path: endpoint for part in components for path, endpoint in part.answers.items()}
        health = JsonApi(health, answers, partial(authenticate, api))
        group.create_task(answer(api, settings, health), name="health")
        for reflector in shared_reflectors(informers):
            group.create_task(reflector.run(), name=f"reflector-{reflector.resource.plural}")
        for informer in informers:
            await informer.answered()
        lifecycle.keep_objects()
        if context.defaulter is not None:
            group.create_task(kubevirts.run(), name="kubevirt")
            await kubevirts.settled(KUBEVIRT_SECONDS)
        if settings.leader_election:
            elector = elect(
                LEASE,
                duration_seconds=LEASE_SECONDS,
                renew_deadline_seconds=RENEW_DEADLINE_SECONDS,
                retry_seconds=RETRY_SECONDS,
            )
            await lead(elector, partial(_work, components))
        else:
            await _work(components)


def build(configuration: Configuration, context: ControllerContext, prometheus: Prometheus | None) -> list[Component]:
    """Builds the components of the installed kinds, and those that the configuration enables."""
    settings = configuration.settings
    machines, agents = settings.machine_cidrs, NetworkAgentClient(settings.agent_proxy)
    authority = AgentAuthority(context.api, settings.namespace)
    of_kinds: Mapping[tuple[Kind, ...], Callable[[], Component]] = {
        (POOL,): lambda: pool(context, prometheus),
        (REPLICA_SET,): lambda: replicaset(context),
        (MIGRATION_POLICY,): lambda: policy(context),
        (WARM_POOL, CLAIM): lambda: warm(
            context,
            configuration.ec2,
            machines=machines,
            agents=agents,
            authority=authority,
            virtual_node=configuration.node.name if configuration.node is not None else "",
        ),
    }
    found = [make() for kinds, make in of_kinds.items() if not settings.kinds_off & {kind.plural for kind in kinds}]
    if context.defaulter is not None:
        found.append(defaulting(context, context.defaulter, settings.macs, settings.read_domains))
    if configuration.node is not None:
        vm_agents = VMAgents(context.api, machines, authority)
        found.append(virtual_node(context, configuration.node, agents, vm_agents))
    return found


async def _work(components: Sequence[Component]) -> None:
    async with asyncio.TaskGroup() as group:
        for component in components:
            group.create_task(_work_when_synced(component), name=component.name)


async def _work_when_synced(component: Component) -> None:
    """A CRD that is missing, because GitOps brings it later or somebody has deleted it, stops only its component."""
    for informer in component.informers:
        await informer.synced()
    await component.work()


def _missing(informers: Sequence[Informer[Any]]) -> Mapping[str, str] | None:
    """The resources that are not listed, and why."""
    return {i.resource.plural: i.problem or "not listed yet" for i in informers if not i.is_synced} or None


@asynccontextmanager
async def _defaulter(
    url: str, api: Api, nodes: Informer[Node], kubevirts: OptionalInformer[Json]
) -> AsyncIterator[Defaulter | None]:
    if not url:
        yield None
        return
    index = NodeIndex()
    nodes.subscribe(index.node_changed)
    async with Defaulter(
        url,
        nodes=index,
        kubevirt=lambda: cluster_settings.choose(kubevirts.all),
        read_specs=InstancetypeReader(api, monotonic).read,
    ) as defaulter:
        yield defaulter


async def answer(api: Api, settings: Settings, app: Any) -> None:
    """Serves health, metrics and plans once a certificate exists."""
    async with asyncio.TaskGroup() as group:
        if settings.tls is not None and settings.tls_secret:
            files = SecretFiles(api, settings.namespace, settings.tls_secret, settings.tls)
            group.create_task(files.run(), name="certificate-files")
            await files.wait_until_written()
        await serve(app, settings.host, settings.port, settings.tls, on_certificate=api.metrics.set_certificate)


async def lead(lease: LeaderElector, work: Callable[[], Awaitable[None]]) -> NoReturn:
    """Runs the work whenever this process is the leader."""
    while True:
        try:
            await lease.run(work)
        except LeaseLost as lost:
            log.error("%s", lost)
        await asyncio.sleep(1)


def main() -> int:
    return lifecycle.start("controllers", Configuration.read, run)


if __name__ == "__main__":
    sys.exit(main())
