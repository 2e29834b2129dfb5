"""What `poolhouse attach` says before and after a VM joins its pool."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.cli.detach import Attachment, attach_vms, detach_vm
from poolhouse.cli.output import Failed
from poolhouse.runtime.errors import NotFound
from tests.builders import owned_by

ATTACHED = "web-1 is attached to web"
PAUSED = "when web is resumed, because it is paused"


@pytest.mark.parametrize(
    ("found", "harmless", "message"),
    [
        pytest.param(Attachment("web-1", "web", 0, ()), True, ATTACHED, id="room in the pool"),
        pytest.param(
            Attachment("web-1", "web", 0, (), paused=True),
            True,
            f"{ATTACHED}, which is paused: it does nothing to the VM until it is resumed",
            id="room in a paused pool",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ("web-2",)),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes web-2",
            id="another VM is deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ("web-2",), paused=True),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes web-2 {PAUSED}",
            id="another VM is deleted later",
        ),
        pytest.param(
            Attachment("web-1", "web", 2, ("web-2",), waits="web-3 is protected"),
            False,
            f"{ATTACHED}, which has 2 VMs more than spec.replicas: scale-in deletes web-2; web-3 is protected",
            id="fewer VMs than the excess are deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, (), waits="all are protected"),
            True,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes none now: all are protected",
            id="none can be deleted",
        ),
        pytest.param(
            Attachment("web-1", "web", 1, ()),
            False,
            f"{ATTACHED}, which has 1 VM more than spec.replicas: scale-in deletes 1 VM",
            id="what decides it is unknown",
        ),
    ],
)
def test_an_attachment_asks_if_a_vm_is_deleted(found: Attachment, harmless: bool, message: str) -> None:
    assert (found.harmless, found.message) == (harmless, message)


class OneVM:
    """An API server with one VM, which refuses all writes."""

    def __init__(self, *owners: dict[str, Any]) -> None:
        self._owners = [*owners]

    async def get(self, resource: Any, *_: object) -> dict[str, Any]:
        if resource.kind == POOLS.kind:
            raise NotFound("there is no such pool", status=404)
        metadata = {"name": "web-1", "namespace": "default", "uid": "u", "resourceVersion": "1"}
        return {"metadata": {**metadata, "labels": {"poolhouse.dev/pool": "web"}, "ownerReferences": self._owners}}


@pytest.mark.parametrize(
    ("version", "controller"),
    [("pool.kubevirt.io/v1beta1", "KubeVirt's pool web"), ("apps/v1", "ReplicaSet web")],
)
async def test_a_vm_of_another_controller_is_not_taken_from_it(version: str, controller: str) -> None:
    (reference,) = owned_by(POOLS, "web", "u-web")
    kind = "VirtualMachinePool" if "pool" in version else "ReplicaSet"
    api, cluster = OneVM({**reference, "apiVersion": version, "kind": kind}), Place()
    with pytest.raises(Failed, match=f"web-1 is in no pool of Poolhouse; {controller} controls it"):
        await detach_vm(api, cluster, "web-1")
    with pytest.raises(Failed, match=f"web-1 belongs to {controller}; detach it there first"):
        await attach_vms(api, cluster, ("web-1",), None, yes=True)


async def test_a_vm_is_attached_to_no_pool_that_does_not_exist() -> None:
    with pytest.raises(NotFound, match="there is no such pool"):
        await attach_vms(OneVM(), Place(), ("web-1",), "wep", yes=True)


class Place:
    namespace = "default"
