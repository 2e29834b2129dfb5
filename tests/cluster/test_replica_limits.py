"""The replica limit at a real API server: in objects, in scale subresources, and while the webhook is down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from poolhouse.api.kinds.meta import MAX_REPLICAS
from poolhouse.cli.plan import plan
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import NAMESPACES, Resource
from tests.builders import manifest
from tests.cluster.test_admission import POOLS, REPLICA_SETS, WARM_POOLS, Admission, admission, eventually, pool, vm
from tests.cluster.test_kinds import api, namespace
from tests.resources import QUOTAS

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]


async def scaled(api: Api, namespace: str, replicas: int) -> Json:
    return await api.patch(POOLS, namespace, "web", {"spec": {"replicas": replicas}}, subresource="scale")


async def test_nobody_raises_replicas_above_the_limit(admission: Admission, namespace: str) -> None:
    api = admission.api
    with pytest.raises(ApiError, match=r"spec\.replicas: must be at most 10000, not 1000000000"):
        await api.create(POOLS, pool(namespace, replicas=10**9))
    await api.create(POOLS, pool(namespace))
    with pytest.raises(ApiError, match=r"spec\.replicas: must be at most 10000, not 1000000000"):
        await scaled(api, namespace, 10**9)
    await scaled(api, namespace, 5)

    await api.patch(NAMESPACES, None, namespace, {"metadata": {"annotations": {MAX_REPLICAS: "4"}}})
    with pytest.raises(ApiError, match=r"must be at most 4, not 6: the annotation poolhouse\.dev/max-replicas"):
        await scaled(api, namespace, 6)
    await api.patch(POOLS, namespace, "web", {"spec": {"paused": True}})
    with pytest.raises(ApiError, match="must be at most 4, not 6"):
        await api.patch(POOLS, namespace, "web", {"spec": {"replicas": 6}})
    await scaled(api, namespace, 4)

    await api.patch(NAMESPACES, None, namespace, {"metadata": {"annotations": {MAX_REPLICAS: "20000"}}})
    await scaled(api, namespace, 20_000)


def of_kind(resource: Resource, namespace: str) -> Json:
    """An object with this resource, whose VMs run, and which has one replica."""
    template: Json = {"metadata": {"labels": {"app": "web"}}, "spec": vm(namespace)["spec"]["template"]["spec"]}
    if resource == POOLS:
        return pool(namespace, replicas=1)
    if resource == WARM_POOLS:
        return manifest(WARM_POOLS, "web", {"replicas": 1, "template": {"spec": {"template": template}}}, namespace)
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return manifest(REPLICA_SETS, "web", spec, namespace)


@pytest.mark.parametrize("resource", [POOLS, REPLICA_SETS, WARM_POOLS], ids=lambda resource: resource.plural)
async def test_a_scale_above_a_quota_warns(admission: Admission, namespace: str, resource: Resource) -> None:
    await admission.api.create(QUOTAS, manifest(QUOTAS, "five", {"hard": {"pods": "5"}}, namespace))
    await admission.api.create(resource, of_kind(resource, namespace))
    scale = resource.path(namespace, "web", "scale")

    async def warned(replicas: int) -> list[str]:
        warnings: list[str] = []
        found = await admission.api.request("GET", scale)
        body = {**found, "spec": {"replicas": replicas}}
        await admission.api.request("PUT", scale, body=body, warnings=warnings)
        return warnings

    assert await warned(5) == []
    assert await warned(50) == ["spec.replicas: ResourceQuota five allows 5 pods, which is enough for 5 of 50 VMs"]


async def test_a_number_with_an_exponent_is_a_number(admission: Admission, namespace: str, tmp_path: Path) -> None:
    async def planned(number: str) -> tuple[int, str]:
        text = json.dumps(pool(namespace, replicas=2)).replace('"replicas": 2', f'"replicas": {number}')
        (tmp_path / "pool.yaml").write_text(f"# YAML\n{text}")
        found = await asyncio.to_thread(CliRunner().invoke, plan, ["-f", str(tmp_path / "pool.yaml")])
        return found.exit_code, found.output

    code, output = await planned("1e9")
    assert code == 1
    assert "spec.replicas: must be at most 10000, not 1000000000" in output
    code, output = await planned("1e1")
    assert (code, "web: 10 actions in 1 round" in output) == (0, True), output


async def test_scaling_works_while_the_webhook_is_down(admission: Admission, namespace: str) -> None:
    api = admission.api
    await api.create(POOLS, pool(namespace, maxReplicas=7))
    await admission.webhook_ends()

    async def refused() -> bool:
        try:
            await api.patch(POOLS, namespace, "web", {"spec": {"paused": True}})
        except ApiError as error:
            return "failed calling webhook" in error.message
        return False

    await eventually(refused)
    await scaled(api, namespace, 7)
    with pytest.raises(ApiError, match=r"must be at most 7 \(maxReplicas\), not 8"):
        await scaled(api, namespace, 8)
