"""The webhook is away, and somebody has chosen that no VM is stored undecided: what must pass all the same does."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import INSTANCE_TYPE
from poolhouse.manifests import webhooks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import Resource
from tests.cluster.test_admission import (
    ACCOUNTS,
    CONFIGURATIONS,
    INSTANCES,
    MACHINES,
    POOLS,
    Admission,
    admission,
    eventually,
    pool,
    vm,
)
from tests.cluster.test_kinds import api, namespace

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]

PODS = Resource("", "v1", "pods", "Pod")
CLAIMS = Resource(CLAIM.group, CLAIM.versions[0], CLAIM.plural, CLAIM.kind)
MAPS = Resource("", "v1", "configmaps", "ConfigMap")


async def closed(admission: Admission, namespace: str) -> None:
    """VMs fail closed from now on, and nobody answers."""
    path = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
    await admission.api.patch(CONFIGURATIONS[0], None, webhooks.DEFAULTING_CONFIGURATION, path, kind="json")
    await admission.webhook_ends()

    async def refused() -> bool:
        try:
            await admission.api.create(MACHINES, vm(namespace, "probe"), dry_run=True)
        except ApiError as error:
            return "failed calling webhook" in error.message
        return False

    await eventually(refused)


async def test_what_changes_no_wish_passes_while_everything_fails_closed(admission: Admission, namespace: str) -> None:
    api = admission.api
    for name in ("web", "gone"):
        await api.create(MACHINES, vm(namespace, name, finalizers=["test.dev/stay"]))
    instance: Json = {**vm(namespace), "kind": "VirtualMachineInstance"}
    instance["spec"] = instance["spec"]["template"]["spec"]
    await api.create(INSTANCES, instance)
    await api.create(POOLS, pool(namespace))
    claim: Json = {"metadata": {"name": "ci", "namespace": namespace}, "spec": {"poolName": "web"}}
    await api.create(CLAIMS, {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, **claim})
    await closed(admission, namespace)

    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(MACHINES, namespace, "web", {"spec": {"running": False}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(POOLS, namespace, "web", {"spec": {"paused": True}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(CLAIMS, namespace, "ci", {"metadata": {"annotations": {INSTANCE_TYPE: "large"}}})

    # Of our own kinds as well only what is wanted is held: whoever keeps disks or machines must let go.
    for resource, name in ((POOLS, "web"), (CLAIMS, "ci")):
        for part in ({"finalizers": ["test.dev/stay"]}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}):
            await api.patch(resource, namespace, name, {"metadata": part})
        await api.patch(resource, namespace, name, {"metadata": {"finalizers": None}})
    # KubeVirt goes on: states, labels, finalizers, migrations' marks.
    await api.patch(MACHINES, namespace, "web", {"status": {"ready": True}}, subresource="status")
    await api.patch(INSTANCES, namespace, "web", {"status": {"phase": "Running"}})
    await api.patch(INSTANCES, namespace, "web", {"metadata": {"labels": {"kubevirt.io/nodeName": "node-2"}}})
    await api.patch(MACHINES, namespace, "web", {"metadata": {"annotations": {"a": "b"}}})
    # A drain ends instances, an autoscaler changes numbers, and whoever cleans up deletes.
    await api.delete(INSTANCES, namespace, "web")
    await api.patch(POOLS, namespace, "web", {"spec": {"replicas": 3}}, subresource="scale")
    await api.delete(MACHINES, namespace, "gone")
    await api.patch(MACHINES, namespace, "gone", {"metadata": {"finalizers": None}})
    await _absent(api, MACHINES, namespace, "gone")
    await api.delete(POOLS, namespace, "web")
    await _absent(api, POOLS, namespace, "web")
    await eventually(lambda: _there(api, ACCOUNTS, namespace, "default"))  # without which no pod is taken
    # Nobody asks us about what is not ours: pods of nodes, of the network, our own.
    await api.create(MAPS, {"metadata": {"name": "cni", "namespace": namespace}})
    pod = {"metadata": {"name": "cni", "namespace": namespace}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await api.create(PODS, pod)
    await api.delete(PODS, namespace, "cni")


async def test_whoever_is_exempt_is_not_refused_either(admission: Admission, namespace: str) -> None:
    await closed(admission, namespace)
    exempt = vm("kube-system", "exempt")
    assert (await admission.api.create(MACHINES, exempt))["spec"] == exempt["spec"]
    await admission.api.delete(MACHINES, "kube-system", "exempt")
    labelled = vm(namespace, labels={"poolhouse.dev/defaulting": "disabled"})
    assert (await admission.api.create(MACHINES, labelled))["spec"] == labelled["spec"]


async def _there(api: Api, resource: Resource, namespace: str, name: str) -> bool:
    try:
        await api.get(resource, namespace, name)
    except NotFound:
        return False
    return True


async def _absent(api: Api, resource: Resource, namespace: str, name: str) -> None:
    with pytest.raises(NotFound):
        await api.get(resource, namespace, name)
