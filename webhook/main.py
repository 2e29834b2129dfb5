"""The webhook, as its container starts it: settings from the environment, then the parts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import aiohttp
from prometheus_client import CollectorRegistry

from defaulter.contract import (
    SCHEDULABLE_LABEL,
    Defaulter,
    MachineTypeIndex,
    MACPolicy,
    Node,
    parse_mac_policy,
    read_node,
)
from kinds import KINDS, meta
from runtime.api import Api
from runtime.circuit_breaker import CircuitBreaker
from runtime.informer import Informer
from runtime.metrics import Metrics as RuntimeMetrics
from runtime.resource import Resource
from runtime.secret_files import SecretFiles
from service import lifecycle, logs, settings
from service.certwatcher import CABundle
from service.server import serve
from webhook.admission import Admission, AdmissionHandler
from webhook.app import WebhookParts, create_app
from webhook.conflicts import DefaultPoolConflicts, DiskConflicts, PolicyConflicts
from webhook.defaulting import DEFAULTED_KINDS, DefaulterClient, DefaultingHandler, NoDefaulter
from webhook.dryrun import DryRun
from webhook.explain import PolicyExplainer
from webhook.hardware_drift import HardwareDrift
from webhook.metrics import Metrics
from webhook.plans import PlanClient
from webhook.templates import TemplateReview

log = logging.getLogger(__name__)

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)

LINGER_SECONDS = 3.0
"""on a cluster, for API servers that keep connections: their next request is answered, and ends its connection"""
DRAIN_SECONDS = 15.0
"""longer than any webhook's timeout: no API server still waits for an answer after that"""


@dataclass(frozen=True)
class Settings:
    host: str
    port: int
    tls: Path | None
    defaulter_url: str
    """empty: VMs are stored as they come"""
    identity_seed: str
    macs: MACPolicy = "deterministic"
    """as the defaulter has it"""
    controllers_url: str = ""
    """where plans are asked for; empty: nowhere, and dry runs have none"""
    defaulter_seconds: float = 2.0
    """for one VM; the API server waits 3"""
    template_review_seconds: float = 6.0
    """for a template, which a VM's whole admission is a part of; the API server waits 10"""
    defaulter_connections: int = 64
    tls_secret: str = ""
    """where the files of `tls` come from; empty: somebody else puts them there"""
    namespace: str = meta.NAMESPACE
    log_format: logs.Format = "text"
    log_level: str = "INFO"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Raises ValueError with a sentence that names the variable."""
        host, port = settings.address(environment, "127.0.0.1:8443")
        return cls(
            host=host,
            port=port,
            tls=settings.tls(environment),
            defaulter_url=environment.get("POOLHOUSE_DEFAULTER_URL", ""),
            identity_seed=environment.get("POOLHOUSE_IDENTITY_SEED", ""),
            macs=parse_mac_policy(environment.get("POOLHOUSE_MACS", "deterministic")),
            controllers_url=environment.get("POOLHOUSE_CONTROLLERS_URL", ""),
            tls_secret=settings.tls_secret(environment),
            namespace=settings.namespace(environment, meta.NAMESPACE),
            log_format=settings.log_format(environment),
            log_level=settings.log_level(environment),
        )


async def run(settings: Settings) -> None:
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            await Api.connect(user_agent="poolhouse-webhook", metrics=RuntimeMetrics(registry))
        )
        trust = CABundle(settings.tls / "ca.crt") if settings.tls is not None else None
        session = await stack.enter_async_context(_session(settings, trust))
        nodes: Informer[Node] = Informer(api, NODES, read_node, label_selector=SCHEDULABLE_LABEL)
        app = create_app(_parts(settings, api, session, nodes, registry))
        async with asyncio.TaskGroup() as group:
            # The nodes' machine types improve defaults. No request waits until they are listed.
            background = [group.create_task(nodes.run(), name="nodes")]
            if trust is not None:
                background.append(group.create_task(trust.run(), name="ca-bundle"))
            if settings.tls is not None and settings.tls_secret:
                files = SecretFiles(api, settings.namespace, settings.tls_secret, settings.tls)
                background.append(group.create_task(files.run(), name="certificate-files"))
                await files.wait_until_written()
            log.info("serving admission on %s:%d", settings.host, settings.port)
            await serve(
                app,
                settings.host,
                settings.port,
                settings.tls,
                linger_seconds=LINGER_SECONDS if settings.tls_secret else 0.0,
                drain_seconds=DRAIN_SECONDS,
                on_certificate=api.metrics.set_certificate,
            )
            for task in background:
                task.cancel()


def _parts(
    settings: Settings,
    api: Api,
    session: aiohttp.ClientSession,
    nodes: Informer[Node],
    registry: CollectorRegistry,
) -> WebhookParts:
    metrics = Metrics(registry, [*(kind.kind for kind in KINDS), *(kind for _, kind in DEFAULTED_KINDS)])
    machine_types = MachineTypeIndex()
    nodes.subscribe(machine_types.node_changed)
    defaulter: DefaulterClient = NoDefaulter()
    defaulting: AdmissionHandler = NoDefaulter()
    drift: HardwareDrift | None = None
    if settings.defaulter_url:
        defaulter = Defaulter(
            settings.defaulter_url, settings.defaulter_seconds, session, machine_types=machine_types.current
        )
        defaulting = handler = DefaultingHandler(
            defaulter,
            seed=settings.identity_seed,
            budget_seconds=settings.defaulter_seconds,
            now=monotonic,
            breaker=CircuitBreaker(),
            macs=settings.macs,
        )
        metrics.breaker(lambda: handler.breaker.state)
        drift = HardwareDrift(now=monotonic, macs=settings.macs)
    checks = tuple(
        check(api, budget_seconds=settings.template_review_seconds)
        for check in (DefaultPoolConflicts, TemplateReview, PolicyConflicts, DiskConflicts)
    )
    plans = PlanClient(settings.controllers_url, session) if settings.controllers_url else None
    return WebhookParts(
        api=api,
        admission=Admission(defaulting=defaulting, checks=checks, drift=drift),
        dry_run=DryRun(api, defaulter, settings.identity_seed, plans),
        explain=PolicyExplainer(api),
        metrics=metrics,
    )


def _session(settings: Settings, trust: CABundle | None) -> aiohttp.ClientSession:
    """One pool of connections that stay open. It trusts what our own serving certificate was signed by."""
    ssl = trust.context if trust is not None else True
    connector = aiohttp.TCPConnector(limit=settings.defaulter_connections, keepalive_timeout=60, ssl=ssl)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    try:
        settings = Settings.read(os.environ)
    except ValueError as error:
        logs.configure("webhook")
        log.critical("%s", error)
        return 2
    logs.configure("webhook", settings.log_format, settings.log_level)
    return lifecycle.run(lambda: run(settings))
