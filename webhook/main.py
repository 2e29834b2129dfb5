"""Starts the webhook with settings from the environment."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Self

import aiohttp
from prometheus_client import CollectorRegistry
from pydantic import BeforeValidator, model_validator

from defaulter.contract import (
    SCHEDULABLE_LABEL,
    Defaulter,
    DefaulterClient,
    KnownShapes,
    MACPolicy,
    Node,
    NodeIndex,
    read_node,
)
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta, replica_limits
from poolhouse.api.kubevirt import cluster_settings
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.versions import Release
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.metrics import Metrics as RuntimeMetrics
from poolhouse.runtime.optional_informer import OptionalInformer
from poolhouse.runtime.resource import KUBEVIRTS, NAMESPACES, NODES, VMIS
from poolhouse.runtime.secret_files import SecretFiles
from poolhouse.service import lifecycle
from poolhouse.service.certwatcher import CABundle
from poolhouse.service.cpu_lane import SWITCH_SECONDS
from poolhouse.service.server import serve
from poolhouse.service.settings import IdentitySettings, ListenAddress, ServiceSettings, listen_setting, setting, split
from webhook.admission import Admission, AdmissionHandler
from webhook.app import create_app
from webhook.callers import AdmissionBodies, ApiServerCertificate, UnknownCallers, connection_limit
from webhook.claimed_pools import ClaimedPool
from webhook.cloud_init import CloudInitChanges
from webhook.conflicts import DefaultPoolConflicts, DiskConflicts, PolicyConflicts
from webhook.defaulting import DEFAULTED_KINDS, DefaultingHandler, NoDefaulter
from webhook.dryrun import DryRun
from webhook.hardware_drift import HardwareDrift
from webhook.hook_sidecar import HookSidecar
from webhook.metrics import Metrics
from webhook.migration_settings import MigrationSettings
from webhook.node_capacity import NodeCapacity
from webhook.parts import WebhookParts
from webhook.plans import PlanClient
from webhook.pod_claims import PodClaimReview
from webhook.references import ReferenceReview
from webhook.replica_limits import ReplicaLimit
from webhook.snapshots import SnapshotSupport
from webhook.strict_defaulting import StrictDefaulting
from webhook.templates import TemplateReview
from webhook.version_watch import VersionWatch

log = logging.getLogger(__name__)


LINGER_SECONDS = 3.0
"""On a cluster, time to serve more requests after the stop signal. Each response then closes its connection."""
DRAIN_SECONDS = 15.0
"""Longer than the timeout of every webhook, after which no API server waits for a response."""
DEFAULTER_CONNECTIONS = 1024
"""More than the API server sends at once, because a request that waits here is not in the defaulter's fair queue."""
VERSION_SECONDS = 5.0
"""Time for the defaulter to tell its versions, which no request waits for."""
KUBEVIRT_SECONDS = 10.0
"""Time at the start to read the KubeVirt object, which requests need."""


class Settings(ServiceSettings, IdentitySettings):
    listen: ListenAddress = listen_setting("127.0.0.1:8443")
    client_ca: Path | None = setting(
        "POOLHOUSE_CLIENT_CA",
        None,
        "File with the authority of the API server's client certificate. Empty: API servers show none, so that "
        "`/mutate` and `/validate` answer everybody.",
    )
    client_names: Annotated[frozenset[str], BeforeValidator(split)] = setting(
        "POOLHOUSE_CLIENT_NAMES",
        frozenset(),
        "Common names of that certificate, `NAME,...`. Empty: any certificate of the authority.",
    )
    unknown_callers: UnknownCallers = setting(
        "POOLHOUSE_UNKNOWN_CALLERS",
        "refuse",
        "What happens to callers of `/mutate` and `/validate` without that certificate: `refuse`, or `limit` the size, "
        "rate and number of their requests.",
    )
    defaulter_url: str = setting("POOLHOUSE_DEFAULTER_URL", "", "The defaulter. Empty: VMs get no hardware defaults.")
    controllers_url: str = setting(
        "POOLHOUSE_CONTROLLERS_URL", "", "The controllers, which answer plans. Empty: dry runs have no plan."
    )
    macs: MACPolicy = setting(
        "POOLHOUSE_MACS", "deterministic", "MAC addresses of interfaces without one. `libvirt` gives random ones."
    )
    strict_defaulting: bool = setting(
        "POOLHOUSE_STRICT_DEFAULTING",
        False,
        "Whether VMs are refused while they cannot get their hardware defaults. The annotation "
        f'`{meta.STRICT_DEFAULTING}: "true"` asks for it in one namespace.',
    )
    max_replicas: int = setting(
        "POOLHOUSE_MAX_REPLICAS",
        replica_limits.DEFAULT_MAX_REPLICAS,
        replica_limits.SETTING,
        ge=1,
        le=replica_limits.UNLIMITED,
    )
    hook_image: str = setting(
        "POOLHOUSE_HOOK_IMAGE",
        "",
        "Image of the defaulter, which KubeVirt runs beside each VMI with a hardware record, where it has the feature "
        "gate `Sidecar`. Empty: VMIs get no sidecar.",
    )
    hook_plugin: bool = setting(
        "POOLHOUSE_HOOK_PLUGIN",
        False,
        "Whether the cluster has Poolhouse's plugin. VMIs then get no sidecar if KubeVirt has the feature gate "
        "`Plugins`.",
    )

    @model_validator(mode="after")
    def _client_ca_needs_tls(self) -> Self:
        if self.client_ca is not None and self.tls is None:
            raise ValueError("POOLHOUSE_CLIENT_CA: POOLHOUSE_TLS_DIR is required: certificates need HTTPS")
        return self

    @model_validator(mode="after")
    def _strict_defaulting_needs_a_defaulter(self) -> Self:
        if self.strict_defaulting and not self.defaulter_url:
            raise ValueError(
                "POOLHOUSE_STRICT_DEFAULTING: POOLHOUSE_DEFAULTER_URL is required: else every VM is refused"
            )
        return self

    @property
    def api_server(self) -> ApiServerCertificate | None:
        return None if self.client_ca is None else ApiServerCertificate(self.client_names, self.unknown_callers)


@dataclass(frozen=True)
class Budgets:
    """Seconds for calls to other services during one admission request."""

    defaulter_seconds: float = 2.0
    """The API server waits 3 s for the admission of a VM."""
    checks_seconds: float = 6.0
    """The API server waits 10 s for the admission of a pool, which includes the admission of a VM."""
    limit_seconds: float = 1.0
    """Scaling must not wait: without the namespace, the limit of the installation applies."""
    hint_seconds: float = 1.0
    """A check of a claim that can only warn must not delay the claim."""


async def run(settings: Settings, budgets: Budgets = Budgets()) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            await Api.connect(user_agent="poolhouse-webhook", metrics=RuntimeMetrics(registry))
        )
        trust = CABundle(settings.tls / "ca.crt") if settings.tls is not None else None
        session = await stack.enter_async_context(_session(trust))
        nodes: Informer[Node] = Informer(api, NODES, read_node, label_selector=SCHEDULABLE_LABEL)
        kubevirts: OptionalInformer[Json] = OptionalInformer(api, KUBEVIRTS, cluster_settings.excerpt)
        app = create_app(_parts(settings, budgets, api, session, nodes, kubevirts, registry))
        async with asyncio.TaskGroup() as group:
            # Lists the nodes in the background, because requests are served without the nodes' machine types too.
            background = [
                group.create_task(nodes.run(), name="nodes"),
                group.create_task(kubevirts.run(), name="kubevirt"),
            ]
            if settings.defaulter_url:
                watch = _version_watch(settings.defaulter_url, session, nodes, kubevirts, app.state.parts.metrics)
                background.append(group.create_task(watch.run(), name="versions"))
            if trust is not None:
                background.append(group.create_task(trust.run(), name="ca-bundle"))
            if settings.tls is not None and settings.tls_secret:
                files = SecretFiles(api, settings.namespace, settings.tls_secret, settings.tls)
                background.append(group.create_task(files.run(), name="certificate-files"))
                await files.wait_until_written()
            if settings.defaulter_url:
                # The first VMs get the cluster's defaults too. Without the object, KubeVirt's own defaults apply.
                await kubevirts.settled(KUBEVIRT_SECONDS)
            log.info("serving admission on %s:%d", settings.host, settings.port)
            await serve(
                app,
                settings.host,
                settings.port,
                settings.tls,
                linger_seconds=LINGER_SECONDS if settings.tls_secret else 0.0,
                drain_seconds=DRAIN_SECONDS,
                clients=settings.client_ca,
                connections=connection_limit(settings.api_server),
                on_certificate=api.metrics.set_certificate,
            )
            for task in background:
                task.cancel()


def _parts(
    settings: Settings,
    budgets: Budgets,
    api: Api,
    session: aiohttp.ClientSession,
    nodes: Informer[Node],
    kubevirts: OptionalInformer[Json],
    registry: CollectorRegistry,
) -> WebhookParts:
    metrics = Metrics(registry, [*(kind.kind for kind in KINDS), *(kind for _, kind in DEFAULTED_KINDS)])
    node_index = NodeIndex()
    nodes.subscribe(node_index.node_changed)
    defaulter: DefaulterClient = NoDefaulter()
    defaulting: AdmissionHandler = NoDefaulter()
    drift: HardwareDrift | None = None
    instancetypes = InstancetypeReader(api, monotonic)
    if settings.defaulter_url:
        defaulter = Defaulter(
            settings.defaulter_url,
            budgets.defaulter_seconds,
            session,
            nodes=node_index,
            kubevirt=lambda: cluster_settings.choose(kubevirts.all),
            read_specs=instancetypes.read,
            known_shapes=KnownShapes(monotonic, metrics.shape),
        )
        defaulting = _defaulting(settings, budgets, api, defaulter, kubevirts, metrics)
        drift = HardwareDrift(now=monotonic, macs=settings.macs)
    capacity = NodeCapacity()
    nodes.subscribe(capacity.node_changed)
    read_settings = partial(_settings, kubevirts)
    limit = ReplicaLimit(
        api, settings.max_replicas, capacity, read_settings, instancetypes, budget_seconds=budgets.limit_seconds
    )
    plans = PlanClient(settings.controllers_url, session) if settings.controllers_url else None
    return WebhookParts(
        api=api,
        admission=Admission(
            defaulting=defaulting,
            checks=tuple(_checks(api, budgets, kubevirts, instancetypes)),
            limit=limit,
            drift=drift,
        ),
        dry_run=DryRun(defaulter, settings.seed, plans),
        metrics=metrics,
        reviews=AdmissionBodies(settings.api_server),
    )


def _version_watch(
    url: str, session: aiohttp.ClientSession, nodes: Informer[Node], kubevirts: OptionalInformer[Json], metrics: Metrics
) -> VersionWatch:
    def release() -> Release | None:
        found = _settings(kubevirts)
        return found.release if found is not None else None

    defaulter = Defaulter(url, VERSION_SECONDS, session)
    return VersionWatch(defaulter.version, lambda: nodes.store, release, metrics.versions)


def _defaulting(
    settings: Settings,
    budgets: Budgets,
    api: Api,
    defaulter: DefaulterClient,
    kubevirts: OptionalInformer[Json],
    metrics: Metrics,
) -> AdmissionHandler:
    handler = DefaultingHandler(
        defaulter,
        seed=settings.seed,
        budget_seconds=budgets.defaulter_seconds,
        now=monotonic,
        breaker=CircuitBreaker(),
        find_vmi=partial(find, api, VMIS),
        macs=settings.macs,
    )
    metrics.breaker(lambda: handler.breaker.state)
    defaulting: AdmissionHandler = handler
    if settings.hook_image:
        plugin = settings.hook_plugin
        defaulting = HookSidecar(handler, settings.hook_image, lambda: _settings(kubevirts), plugin=plugin)
    return StrictDefaulting(
        defaulting,
        lambda namespace: api.get(NAMESPACES, None, namespace),
        everywhere=settings.strict_defaulting,
        macs=settings.macs,
    )


def _checks(
    api: Api, budgets: Budgets, kubevirts: OptionalInformer[Json], instancetypes: InstancetypeReader
) -> Iterator[AdmissionHandler]:
    for check in (
        DefaultPoolConflicts,
        partial(TemplateReview, instancetypes=instancetypes),
        PodClaimReview,
        ReferenceReview,
        PolicyConflicts,
        DiskConflicts,
    ):
        yield check(api, budget_seconds=budgets.checks_seconds)
    yield SnapshotSupport(api, lambda: _settings(kubevirts), budget_seconds=budgets.checks_seconds)
    yield MigrationSettings(lambda: _settings(kubevirts), api.now)
    yield CloudInitChanges()
    yield ClaimedPool(api, budget_seconds=budgets.hint_seconds, now=monotonic)


def _settings(kubevirts: OptionalInformer[Json]) -> ClusterSettings | None:
    found = cluster_settings.choose(kubevirts.all)
    return ClusterSettings.of(found) if found else None


def _session(trust: CABundle | None) -> aiohttp.ClientSession:
    """A session for calls to other services. It trusts the CA of the webhook's own serving certificate."""
    ssl = trust.context if trust is not None else True
    connector = aiohttp.TCPConnector(limit=DEFAULTER_CONNECTIONS, keepalive_timeout=60, ssl=ssl)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def main() -> int:
    return lifecycle.start("webhook", Settings.read, run)
