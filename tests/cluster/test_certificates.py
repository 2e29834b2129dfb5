"""Certificates that are renewed while the API server asks: not one admission is refused, whatever is lost meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from controllers.certificates.controller import Certificates
from controllers.certificates.observe import SECRETS, observe, resource
from controllers.certificates.state import State, Terms
from kinds import meta, webhooks
from local.install import apply
from local.places import Places
from runtime.api import ApiError, NotFound
from runtime.certificates import new_authority, new_server
from runtime.secret import Files
from runtime.serve import Certificate, serve
from tests.cluster.pooling import POOLS, Place, namespace, template

Json = dict[str, Any]

TERMS = Terms(
    ("127.0.0.1",),
    leaf_life=timedelta(seconds=12),
    authority_life=timedelta(seconds=24),
    settle=timedelta(seconds=1.5),
)
KIND = {"apiVersion": POOLS.api_version, "kind": POOLS.kind}
PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 60.0


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

    async def state(self) -> State:
        return await observe(self.place.api, self.place.namespace)

    async def until(self, holds: Callable[[State], bool]) -> State:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds(state := await self.state()):  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_SECONDS:.0f} s") from None
        return state


async def test_not_one_admission_is_refused(control_plane: Places, tmp_path: Path) -> None:
    async with namespace(control_plane.kubeconfig, "certificates") as place, kept(place, tmp_path) as story:
        first = await story.state()
        assert first.leaf is not None

        renewed = await story.until(lambda s: s.leaf is not None and s.leaf.certificate != first.leaf.certificate)
        assert renewed.leaf is not None
        assert renewed.leaf.issuer == first.leaf.issuer, "first a new certificate by the same authority"
        rotated = await story.until(lambda s: s.leaf is not None and s.leaf.issuer != first.leaf.issuer)
        assert len(rotated.authorities) <= 3

        # What is deleted is made anew, and what it had signed stays trusted.
        await place.api.delete(SECRETS, place.namespace, meta.AUTHORITIES)
        another = await story.until(lambda s: s.leaf is not None and s.leaf.issuer != rotated.leaf.issuer)
        await place.api.delete(SECRETS, place.namespace, meta.SERVING)
        await story.until(lambda s: s.leaf is not None and s.leaf.certificate != another.leaf.certificate)
        garbled = {"data": {"tls.key": base64.b64encode(b"no key").decode()}}
        await place.api.patch(SECRETS, place.namespace, meta.SERVING, garbled)
        await story.until(lambda s: s.leaf is not None)

        assert story.load.refused == []
        assert story.load.answered > 50


@asynccontextmanager
async def kept(place: Place, directory: Path) -> AsyncIterator[Story]:
    """A webhook that the API server asks, two keepers of its certificates who know nothing of each other, and load."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    clock = lambda: datetime.now(UTC)  # noqa: E731
    keepers = [Certificates(place.api, place.namespace, TERMS, clock) for _ in range(2)]
    files = Files(place.api, place.namespace, meta.SERVING, directory)

    async def again(look: Callable[[], Any]) -> None:
        while True:
            with suppress(NotFound):
                await look()
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*(keeper.look() for keeper in keepers))
    await files.look()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(again(look)) for look in (*(keeper.look for keeper in keepers), files.look)]
        serving = serve(yes, "127.0.0.1", 0, directory, started=port.set_result, lifespan="off")
        tasks.append(group.create_task(serving))
        url = f"https://127.0.0.1:{await port}"
        configurations = webhooks.configurations(url=url, ca_bundle=b"")
        for configuration in configurations:
            for webhook in configuration["webhooks"]:
                del webhook["clientConfig"]["caBundle"]
                here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [place.namespace]}
                webhook["namespaceSelector"] = {"matchExpressions": [here]}
        try:
            await apply(place.api, configurations)
            story = Story(place, Load(place))
            await story.until(
                lambda s: len(s.trusting) == len(configurations) and all(all(t.bundles) for t in s.trusting)
            )
            await asyncio.sleep(2 * PAUSE_SECONDS)  # the API server learns of it by a watch
            tasks.append(group.create_task(story.load.run()))
            yield story
        finally:
            for task in tasks:
                task.cancel()
            for plural, name in webhooks.names():
                with suppress(NotFound):
                    await place.api.delete(resource(plural), None, name)


def test_a_pair_that_does_not_belong_together_is_not_served(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("test", now, timedelta(days=1))
    pairs = [new_server(authority, "a", ["127.0.0.1"], now, timedelta(days=1)) for _ in range(2)]
    (tmp_path / "tls.crt").write_bytes(pairs[0].certificate)
    (tmp_path / "tls.key").write_bytes(pairs[0].key)
    served = Certificate(tmp_path)
    (tmp_path / "tls.crt").write_bytes(pairs[1].certificate)
    assert not served.renew(), "the old one stays"
    (tmp_path / "tls.key").write_bytes(pairs[1].key)
    assert served.renew()
