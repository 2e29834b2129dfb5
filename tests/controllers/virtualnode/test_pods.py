"""When a Pod says that its claim cannot be created."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.virtualnode.addresses import AddressReader
from controllers.virtualnode.pod import PodPool, parse_pod
from controllers.virtualnode.pods import TRIES, PodController
from controllers.virtualnode.translate import MAX_APPLICATION_BYTES
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid, Unavailable
from poolhouse.runtime.resource import Resource
from tests.controllers.virtualnode.pods import Json, pod
from tests.controllers.virtualnode.test_pod_plan import NOW, a_pool

KEY = ("ns", "web")


class Cluster:
    """An API server that answers each request for a claim by an error, and what it is told."""

    def __init__(self, document: Json, error: ApiError | None = None) -> None:
        self.document, self.error = document, error
        self.creations = 0
        self.patches: list[Json] = []
        self.events: list[tuple[str, str]] = []

    def now(self) -> Any:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        return self.document

    async def create(self, resource: Resource, document: Json) -> None:
        self.creations += 1
        if self.error is not None:
            raise self.error

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Json, **options: str) -> None:
        self.patches.append(patch["status"])

    def emit(self, reference: Json, type: str, reason: str, message: str, *, action: str) -> None:
        self.events.append((reason, message))


class Found:
    """A store with one object."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def get(self, key: Any) -> Any:
        return self.found

    def by(self, index: str, value: str) -> list[PodPool]:
        return [a_pool()]


def controller(cluster: Cluster) -> PodController:
    api, pods = cast(Any, cluster), cast(Any, Found(parse_pod(cluster.document)))
    none = cast(Any, Found(None))
    return PodController(api, api, pods, none, none, AddressReader(lambda key: None, cast(Any, None)))


@pytest.mark.parametrize(
    ("error", "creations"),
    [
        pytest.param(Invalid("spec.application.containers[0].env: too many"), 1, id="an invalid claim"),
        pytest.param(Forbidden("no quota"), 1, id="a refused claim"),
        pytest.param(Unavailable("", reason="Timeout"), TRIES, id="an error without a message"),
        pytest.param(Unavailable("etcdserver: request is too large"), TRIES, id="an error that may pass"),
    ],
)
async def test_a_pod_says_why_its_claim_is_not_created(error: ApiError, creations: int) -> None:
    cluster = Cluster(pod(), error)
    pods = controller(cluster)
    for _ in range(creations - 1):
        with pytest.raises(type(error)):
            await pods.reconcile(KEY)
    assert cluster.patches == []
    assert await pods.reconcile(KEY) == 0.0
    assert await pods.reconcile(KEY) == 60.0
    assert (cluster.creations, cluster.events) == (creations, [("FailedClaim", error.message)])
    assert cluster.patches[0]["reason"] == "FailedClaim"
    assert cluster.patches[0]["message"] == error.message != ""


async def test_a_pod_without_errors_gets_its_claim() -> None:
    cluster = Cluster(pod())
    assert await controller(cluster).reconcile(KEY) is None
    assert (cluster.creations, cluster.patches) == (1, [])


@pytest.mark.parametrize(("characters", "creations"), [("<" * 80_000, 1), ("<" * 90_000, 0), ("x" * 500_000, 1)])
async def test_a_pod_that_does_not_fit_into_a_claim_says_so(characters: str, creations: int) -> None:
    cluster = Cluster(pod(container={"args": [characters]}))
    pods = controller(cluster)
    await pods.reconcile(KEY)
    assert cluster.creations == creations
    if not creations:
        await pods.reconcile(KEY)
        ((reason, message),) = cluster.events
        assert reason == "FailedClaim"
        assert f"at most {MAX_APPLICATION_BYTES} fit" in message
        assert "540" in message  # 90,000 times 6 bytes, and the names of the fields
