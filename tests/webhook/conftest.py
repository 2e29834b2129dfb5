from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.service.request_body import BodyReader
from poolhouse.service.server import serve
from tests.runtime.faulty_server import Server
from tests.waiting import PATIENCE_SECONDS
from tests.webhook.builders import unreadable_vmi
from tests.webhook.fake_defaulter import FakeDefaulter
from webhook import app
from webhook.admission import Admission
from webhook.app import create_app
from webhook.callers import AdmissionBodies
from webhook.conflicts import DefaultPoolConflicts, PolicyConflicts
from webhook.defaulting import DefaultingHandler
from webhook.dryrun import DryRun
from webhook.hardware_drift import HardwareDrift
from webhook.metrics import Metrics
from webhook.parts import WebhookParts
from webhook.pod_claims import PodClaimReview
from webhook.rate_limit import RateLimiter
from webhook.references import ReferenceReview
from webhook.review import AdmissionRequest, AdmissionResponse, from_admission_review
from webhook.templates import TemplateReview


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No handler changes its request: the patch of the answer is a difference from it."""
    seen: list[tuple[AdmissionRequest, AdmissionRequest]] = []
    mutate = DefaultingHandler.handle

    def read(document: dict[str, Any]) -> AdmissionRequest:
        request = from_admission_review(document)
        seen.append((request, deepcopy(request)))
        return request

    async def handle(handler: DefaultingHandler, request: AdmissionRequest) -> AdmissionResponse:
        seen.append((request, deepcopy(request)))
        return await mutate(handler, request)

    monkeypatch.setattr(app, "from_admission_review", read)
    monkeypatch.setattr(DefaultingHandler, "handle", handle)
    yield
    for request, before in seen:
        assert request == before


@dataclass
class RunningWebhook:
    """The webhook on a socket, with a fake defaulter and a scripted API server."""

    service: WebhookParts
    defaulter: FakeDefaulter
    api_server: Server
    client: httpx.AsyncClient
    port: int

    async def review(self, document: dict[str, Any], path: str = "/mutate") -> dict[str, Any]:
        told = await self.client.post(path, json=document)
        assert told.status_code == 200, told.text
        return told.json()["response"]  # type: ignore[no-any-return]

    async def dry_run(self, document: Any, token: str | None = "jane", **params: str) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.client.post("/apis/vms/dryrun", json=document, headers=headers, params=params)


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[RunningWebhook]:
    defaulter = FakeDefaulter()
    async with Server() as api_server, await api_server.connect(tmp_path, timeout_seconds=PATIENCE_SECONDS) as api:
        defaulting = DefaultingHandler(
            defaulter,
            seed="s",
            budget_seconds=PATIENCE_SECONDS,
            now=monotonic,
            breaker=CircuitBreaker(),
            find_vmi=unreadable_vmi,
        )
        metrics = Metrics(CollectorRegistry(), ["VirtualMachine", "VirtualMachinePool"])
        metrics.breaker(lambda: defaulting.breaker.state)
        service = WebhookParts(
            api=api,
            admission=Admission(
                defaulting=defaulting,
                checks=tuple(
                    check(api, budget_seconds=PATIENCE_SECONDS)
                    for check in (
                        DefaultPoolConflicts,
                        partial(TemplateReview, instancetypes=InstancetypeReader(api, monotonic)),
                        PodClaimReview,
                        ReferenceReview,
                        PolicyConflicts,
                    )
                ),
                drift=HardwareDrift(now=monotonic),
            ),
            dry_run=DryRun(defaulter, "s"),
            metrics=metrics,
            reviews=AdmissionBodies(bodies=BodyReader(timeout_seconds=PATIENCE_SECONDS, held_bytes=8 * 1024 * 1024)),
            bodies=BodyReader(timeout_seconds=PATIENCE_SECONDS, held_bytes=8 * 1024 * 1024),
            rate_limiter=RateLimiter(per_second=1, burst=20),
            max_queries_in_flight=4,
        )
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve(create_app(service), "127.0.0.1", 0, drain_seconds=1, started=started.set_result)
        )
        port = await started
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS) as client:
            yield RunningWebhook(service, defaulter, api_server, client, port)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
