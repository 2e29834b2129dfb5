"""Certificates that are renewed while the API server asks: not one admission is refused, whatever is lost meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.certificates.controller import PERIOD_SECONDS, CertificateController
from controllers.certificates.observe import CertificatePolicy, CertificateSnapshot, configuration_resource, observe
from poolhouse.api.kinds import meta
from poolhouse.manifests import webhooks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound, Throttled, Unavailable, Unreachable
from poolhouse.runtime.metrics import PREFIX, Metrics
from poolhouse.runtime.resource import SECRETS
from poolhouse.runtime.secret_files import SecretFiles
from poolhouse.service.server import serve
from poolhouse.stack.install import apply
from poolhouse.stack.paths import StackPaths
from tests.cluster.heard import heard
from tests.cluster.pooling import POOLS, Place, namespace, template
from tests.cluster.resting import rests
from tests.waiting import eventually

Json = dict[str, Any]

POLICY = CertificatePolicy(
    ("127.0.0.1",),
    certificate_life=timedelta(hours=10),
    ca_life=timedelta(hours=12),
    propagation=timedelta(minutes=1),
)
BEHIND = timedelta(hours=9)
KIND = {"apiVersion": POOLS.api_version, "kind": POOLS.kind}
PAUSE_SECONDS = 0.2
CHAOS_SECONDS = float(os.environ.get("POOLHOUSE_CHAOS_SECONDS") or 0)
ROTATION_SECONDS = 20.0
MIN_ROTATIONS = 3
MOST_SECONDS = 30
"""that the API server waits for the webhook"""


async def yes(scope: Any, receive: Any, send: Any) -> None:
    """A webhook that minds nothing, and makes its caller look at its certificate each time."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    review = json.loads(body)
    answer = {"uid": review["request"]["uid"], "allowed": True}
    text = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@dataclass
class Clock:
    """The keepers'. It begins hours ago, so that certificates that they renew when a test lets time pass are valid
    today, as the ones before them are."""

    behind: timedelta = BEHIND

    def __call__(self) -> datetime:
        return datetime.now(UTC) - self.behind

    def passes(self, some: timedelta) -> None:
        self.behind -= some
        assert self.behind > timedelta(), "what is made now begins later"


@dataclass
class Load:
    """Pools tried one after the other, and what was said against them."""

    place: Place
    answered: int = 0
    refused: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            metadata = {"namespace": self.place.namespace, "name": f"load-{self.answered}"}
            pool = {"metadata": metadata, "spec": {"replicas": 1, "template": template()}}
            try:
                await self.place.api.create(POOLS, {**KIND, **pool}, dry_run=True)
                self.answered += 1
            except ApiError as error:
                self.refused.append(error.message)
            await asyncio.sleep(0.02)


@dataclass
class Story:
    place: Place
    load: Load
    clock: Clock
    port: int

    async def state(self) -> CertificateSnapshot:
        return await observe(self.place.api, self.place.namespace)

    async def until(self, holds: Callable[[CertificateSnapshot], bool]) -> CertificateSnapshot:
        async def held() -> CertificateSnapshot | None:
            return state if holds(state := await self.state()) else None

        found: CertificateSnapshot = await eventually(held)
        return found

    async def settled(self) -> None:
        """The newest authority is published, the API server has learned of it, and the time for that has passed."""
        await self.until(published)
        await heard(self.place.api)
        self.clock.passes(2 * POLICY.propagation)

    async def shown(self, state: CertificateSnapshot) -> None:
        """Returns when the webhook shows this certificate, and the API server has asked it for a while."""
        assert state.certificate is not None
        leaf = ssl.PEM_cert_to_DER_cert(state.certificate.certificate.decode())

        async def is_shown() -> bool:
            text = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.port))
            return ssl.PEM_cert_to_DER_cert(text) == leaf

        await eventually(is_shown)
        wanted = self.load.answered + 10
        await eventually(lambda: self.load.refused or self.load.answered >= wanted)


def published(state: CertificateSnapshot) -> bool:
    newest = state.cas[-1:]
    bundles = [bundle for where in state.configurations for bundle in where.bundles]
    return any(each.published and all(each.pair.certificate in bundle for bundle in bundles) for each in newest)


def has_other(found: CertificateSnapshot, than: CertificateSnapshot, attribute: str) -> bool:
    return found.certificate is not None and getattr(found.certificate, attribute) != getattr(
        than.certificate, attribute
    )


async def test_not_one_admission_is_refused(control_plane: StackPaths, tmp_path: Path) -> None:
    async with namespace(control_plane.kubeconfig, "certificates") as place, kept(place, tmp_path) as story:
        first = await story.state()
        assert first.certificate is not None
        await story.shown(first)

        story.clock.passes(timedelta(hours=6))
        renewed = await story.until(lambda s: has_other(s, first, "certificate"))
        assert renewed.certificate is not None
        assert renewed.certificate.issuer == first.certificate.issuer, "first a new certificate by the same authority"
        await story.shown(renewed)

        story.clock.passes(timedelta(hours=1))
        await story.until(lambda s: len(s.cas) == 2)
        await story.settled()
        rotated = await story.until(lambda s: has_other(s, first, "issuer"))
        await story.shown(rotated)

        # What is deleted is made anew, and what it had signed stays trusted.
        await place.api.delete(SECRETS, place.namespace, meta.CA_SECRET)
        await story.until(lambda s: len(s.cas) == 1)
        await story.settled()
        another = await story.until(lambda s: has_other(s, rotated, "issuer"))
        await story.shown(another)
        await place.api.delete(SECRETS, place.namespace, meta.SERVING_SECRET)
        anew = await story.until(lambda s: has_other(s, another, "certificate"))
        await story.shown(anew)
        garbled = {"data": {"tls.key": base64.b64encode(b"no key").decode()}}
        await place.api.patch(SECRETS, place.namespace, meta.SERVING_SECRET, garbled)
        await story.shown(await story.until(lambda s: s.certificate is not None))

        assert story.load.refused == []


async def test_no_admission_is_refused_by_one_rotation_after_another(control_plane: StackPaths, tmp_path: Path) -> None:
    """A rotation each `ROTATION_SECONDS`, for POOLHOUSE_CHAOS_SECONDS."""
    loop = asyncio.get_running_loop()
    async with namespace(control_plane.kubeconfig, "rotations") as place, kept(place, tmp_path) as story:
        rotations, end = 0, loop.time() + CHAOS_SECONDS
        while rotations < MIN_ROTATIONS or loop.time() < end:
            began, before = loop.time(), await story.until(lambda s: s.certificate is not None)
            await place.api.delete(SECRETS, place.namespace, meta.SERVING_SECRET)
            await story.shown(await story.until(lambda s, before=before: has_other(s, before, "certificate")))
            rotations += 1
            await asyncio.sleep(max(0.0, min(began + ROTATION_SECONDS, end) - loop.time()))
        assert story.load.refused == []
        print(f"{rotations} rotations, {story.load.answered} admissions")


@asynccontextmanager
async def kept(place: Place, directory: Path) -> AsyncIterator[Story]:
    """A webhook that the API server asks, two keepers of its certificates who know nothing of each other, and load."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    clock = Clock()
    keepers = [CertificateController(place.api, place.namespace, POLICY, clock) for _ in range(2)]
    files = SecretFiles(place.api, place.namespace, meta.SERVING_SECRET, directory)

    async def repeat(step: Callable[[], Any]) -> None:
        while True:
            with suppress(NotFound, Throttled, Unavailable, Unreachable):
                await step()
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*(keeper.reconcile() for keeper in keepers))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(repeat(keeper.reconcile)) for keeper in keepers]
        tasks.append(group.create_task(files.run()))
        await files.wait_until_written()
        serving = serve(yes, "127.0.0.1", 0, directory, started=port.set_result, lifespan="off")
        tasks.append(group.create_task(serving))
        url = f"https://127.0.0.1:{await port}"
        configurations = webhooks.configurations(
            url=url, ca_bundle=b"", defaulting_timeout_seconds=MOST_SECONDS, timeout_seconds=MOST_SECONDS
        )
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                del webhook["clientConfig"]["caBundle"]
                here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [place.namespace]}
                webhook["namespaceSelector"] = {"matchExpressions": [here]}
        try:
            await apply(place.api, configurations)
            story = Story(place, Load(place), clock, port.result())
            await story.until(
                lambda s: len(s.configurations) == len(configurations) and all(all(t.bundles) for t in s.configurations)
            )
            await heard(place.api)
            tasks.append(group.create_task(story.load.run()))
            yield story
        finally:
            for task in tasks:
                task.cancel()
            for plural, name in webhooks.configuration_names():
                with suppress(NotFound):
                    await place.api.delete(configuration_resource(plural), None, name)


async def test_a_controller_at_rest_reads_nothing_and_restores_what_is_lost(control_plane: StackPaths) -> None:
    registry = CollectorRegistry()

    def reads() -> float:
        return sum(
            sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == f"{PREFIX}api_requests_total" and sample.labels["verb"] == "get"
        )

    async with (
        namespace(control_plane.kubeconfig, "rest") as place,
        await Api.connect(control_plane.kubeconfig, user_agent="keeper", metrics=Metrics(registry)) as api,
        asyncio.TaskGroup() as group,
    ):
        working = group.create_task(CertificateController(api, place.namespace, POLICY, Clock()).run())

        async def certificate() -> Any:
            snapshot = await observe(place.api, place.namespace)
            return snapshot.certificate and snapshot.cas and snapshot.certificate

        first = await eventually(certificate)
        await rests(reads, 2 * PERIOD_SECONDS)
        await place.api.delete(SECRETS, place.namespace, meta.SERVING_SECRET)

        async def another() -> bool:
            found = (await observe(place.api, place.namespace)).certificate
            return found is not None and found != first

        await eventually(another)
        working.cancel()
