"""Bounds at a real API server: an object that was stored before a bound can still be changed elsewhere."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from poolhouse.api.kinds import POOL
from poolhouse.manifests.crd import crd
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Invalid, NotFound
from poolhouse.runtime.resource import CRDS, Resource
from tests.cluster.test_kinds import api as kinds_api
from tests.cluster.test_kinds import applied, namespace
from tests.kinds.documents import pool
from tests.kinds.test_bounds import ordered
from tests.waiting import eventually

Json = dict[str, Any]

__all__ = ["kinds_api", "namespace"]

KIND = replace(POOL, group="bounds.test", short_names=(), categories=())
POOLS = Resource.of(KIND)


def without_rules(schema: Any) -> Any:
    """The schema of a release that did not have the rules."""
    if isinstance(schema, dict):
        return {key: without_rules(inner) for key, inner in schema.items() if key != "x-kubernetes-validations"}
    return [without_rules(each) for each in schema] if isinstance(schema, list) else schema


@pytest_asyncio.fixture
async def api(kinds_api: Api) -> AsyncIterator[Api]:
    """Pools whose CRD has no bounds yet, in a group that no webhook reviews."""
    await applied(kinds_api, without_rules(crd(KIND)))

    async def served() -> bool:
        try:
            await kinds_api.list(POOLS)
        except NotFound:
            return False
        return True

    await eventually(served)
    yield kinds_api
    await kinds_api.delete(CRDS, None, KIND.crd_name)


def beyond(namespace: str, name: str) -> Json:
    policy = {"selectionPolicy": ordered(32, 10, 63)}
    found = pool(name, scaleInStrategy={"proactive": policy}, updateStrategy={"proactive": policy})
    found["spec"]["revisionHistoryLimit"] = 1000
    return {**found, "apiVersion": POOLS.api_version, "metadata": {"name": name, "namespace": namespace}}


async def test_an_object_that_is_older_than_a_bound_can_be_changed(api: Api, namespace: str) -> None:
    stored = await api.create(POOLS, beyond(namespace, "old"))
    await applied(api, crd(KIND))

    async def refusal() -> str:
        try:
            await api.create(POOLS, beyond(namespace, "new"), dry_run=True)
        except Invalid as error:
            return error.message
        return ""

    message = await eventually(refusal)
    assert "at most 128 labels and expressions in all selectors" in message
    assert "at most 100, because each revision stores a template" in message
    await api.patch(POOLS, namespace, "old", {"spec": {"paused": True}})
    await api.patch(POOLS, namespace, "old", {"spec": {"updateStrategy": {"proactive": {"partition": 1}}}})
    await api.patch(POOLS, namespace, "old", {"spec": {"replicas": 5}}, subresource="scale")
    await api.patch(POOLS, namespace, "old", {"status": {"replicas": 5}}, subresource="status")
    replaced = copy.deepcopy(await api.get(POOLS, namespace, "old"))
    replaced["spec"]["maxUnavailable"] = 2
    await api.request("PUT", POOLS.path(namespace, "old"), body=replaced)

    worse = ordered(32, 0, 64)["orderedPolicies"]
    change = {"scaleInStrategy": {"proactive": {"selectionPolicy": {"orderedPolicies": worse}}}}
    with pytest.raises(ApiError, match="at most 128 labels and expressions"):
        await api.patch(POOLS, namespace, "old", {"spec": change})
    assert stored["spec"]["revisionHistoryLimit"] == 1000
