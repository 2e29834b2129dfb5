"""The webhook is away, and somebody has chosen that no VM is stored undecided: what must pass all the same does."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.snapshot import CLAIMS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import INSTANCE_TYPE
from poolhouse.manifests import webhooks
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CONFIG_MAPS, PODS, VMIS, VMS, Resource
from tests.cluster.test_admission import CONFIGURATIONS, POOLS, Admission, admission, eventually, pool, vm
from tests.cluster.test_kinds import api, namespace
from tests.resources import SERVICE_ACCOUNTS

Json = dict[str, Any]

__all__ = ["admission", "api", "namespace"]


async def closed(admission: Admission, namespace: str) -> None:
    """VMs fail closed from now on, and nobody answers."""
    path = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]
    await admission.api.patch(CONFIGURATIONS[0], None, webhooks.DEFAULTING_CONFIGURATION, path, kind="json")
    await admission.webhook_ends()

    async def refused() -> bool:
        try:
            await admission.api.create(VMS, vm(namespace, "probe"), dry_run=True)
        except ApiError as error:
            return "failed calling webhook" in error.message
        return False

    await eventually(refused)


async def test_metadata_status_scale_and_deletions_pass_while_the_webhook_is_down(
    admission: Admission, namespace: str
) -> None:
    api = admission.api
    for name in ("web", "gone"):
        await api.create(VMS, vm(namespace, name, finalizers=["test.dev/stay"]))
    instance: Json = {**vm(namespace), "kind": "VirtualMachineInstance"}
    instance["spec"] = instance["spec"]["template"]["spec"]
    await api.create(VMIS, instance)
    await api.create(POOLS, pool(namespace))
    claim: Json = {"metadata": {"name": "ci", "namespace": namespace}, "spec": {"poolName": "web"}}
    await api.create(CLAIMS, {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, **claim})
    await closed(admission, namespace)

    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(VMS, namespace, "web", {"spec": {"running": False}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(POOLS, namespace, "web", {"spec": {"paused": True}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await api.patch(CLAIMS, namespace, "ci", {"metadata": {"annotations": {INSTANCE_TYPE: "large"}}})

    # Of Poolhouse's kinds, too, only changes of the spec wait for the webhook. Finalizers must be removable.
    for resource, name in ((POOLS, "web"), (CLAIMS, "ci")):
        for part in ({"finalizers": ["test.dev/stay"]}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}):
            await api.patch(resource, namespace, name, {"metadata": part})
        await api.patch(resource, namespace, name, {"metadata": {"finalizers": None}})
    # KubeVirt goes on to write status, labels and finalizers.
    await api.patch(VMS, namespace, "web", {"status": {"ready": True}}, subresource="status")
    await api.patch(VMIS, namespace, "web", {"status": {"phase": "Running"}})
    await api.patch(VMIS, namespace, "web", {"metadata": {"labels": {"kubevirt.io/nodeName": "node-2"}}})
    await api.patch(VMS, namespace, "web", {"metadata": {"annotations": {"a": "b"}}})
    # A drain deletes VMIs, an autoscaler scales, and users delete objects.
    await api.delete(VMIS, namespace, "web")
    await api.patch(POOLS, namespace, "web", {"spec": {"replicas": 3}}, subresource="scale")
    await api.delete(VMS, namespace, "gone")
    await api.patch(VMS, namespace, "gone", {"metadata": {"finalizers": None}})
    await _absent(api, VMS, namespace, "gone")
    await api.delete(POOLS, namespace, "web")
    await _absent(api, POOLS, namespace, "web")
    await eventually(lambda: _there(api, SERVICE_ACCOUNTS, namespace, "default"))  # without which no pod is taken
    # Other kinds do not wait for the webhook.
    await api.create(CONFIG_MAPS, {"metadata": {"name": "cni", "namespace": namespace}})
    pod = {"metadata": {"name": "cni", "namespace": namespace}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await api.create(PODS, pod)
    await api.delete(PODS, namespace, "cni")


async def test_an_exempt_user_is_not_refused(admission: Admission, namespace: str) -> None:
    await closed(admission, namespace)
    exempt = vm("kube-system", "exempt")
    assert (await admission.api.create(VMS, exempt))["spec"] == exempt["spec"]
    await admission.api.delete(VMS, "kube-system", "exempt")
    labelled = vm(namespace, labels={"poolhouse.dev/defaulting": "disabled"})
    assert (await admission.api.create(VMS, labelled))["spec"] == labelled["spec"]


async def _there(api: Api, resource: Resource, namespace: str, name: str) -> bool:
    try:
        await api.get(resource, namespace, name)
    except NotFound:
        return False
    return True


async def _absent(api: Api, resource: Resource, namespace: str, name: str) -> None:
    with pytest.raises(NotFound):
        await api.get(resource, namespace, name)
