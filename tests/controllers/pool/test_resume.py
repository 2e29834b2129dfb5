"""A restored VM gets the run strategy of before, in the write that completes its restore."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.actions import Update
from controllers.pool.apply import PoolWriter
from controllers.pool.writes.updates import update
from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import PVCS, VMS
from tests.controllers.pool.builders import snapshot, template

REQUEST = "web-r1=2026-03-01T11:59:00Z"


class Cluster:
    """An API server with one VM, as a restore has left it, and KubeVirt's start request."""

    def __init__(self, runs: bool, **spec: Any) -> None:
        inner = {key: value for key, value in template()["spec"].items() if key != "running"}
        owner = controller_reference("kubevirt.io/v1", "VirtualMachinePool", "web", snapshot(1).pool.uid)
        metadata = {"namespace": "default", "name": "web-1", "uid": "u-web-1", "ownerReferences": [owner]}
        metadata |= {"annotations": {meta.RESTORE: REQUEST, meta.RUN_STRATEGY: "Manual"}}
        self.vm = {"metadata": metadata, "spec": {**inner, **spec}}
        self.runs, self.asked, self.patched = runs, [], list[tuple[str, str, Any]]()

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        if resource == DATA_VOLUMES:
            labels = {meta.KEPT_BY: "u-web", meta.KEPT_FOR: "web-1"}
            return {"metadata": {"name": name, "uid": "u-disk", "resourceVersion": "7", "labels": labels}}
        if resource == PVCS:
            owner = controller_reference("cdi.kubevirt.io/v1beta1", "DataVolume", name, "u-disk")
            return {"metadata": {"name": name, "uid": "u-claim", "ownerReferences": [owner]}}
        return self.vm if resource.kind == VMS.kind else {"data": {"template": template()}}

    async def patch(self, resource: Any, namespace: str, name: str, body: Any) -> None:
        self.patched.append((resource.kind, name, body["metadata"]))

    async def replace(self, resource: Any, document: Any) -> None:
        self.asked.append((resource.kind, document))

    async def put(self, verb: str, namespace: str, name: str, uid: str) -> None:
        self.asked.append((verb, name))
        if self.runs:
            raise Conflict("VM is already running", status=409)


async def completed(cluster: Cluster, strategy: str, start: bool) -> tuple[list[str], dict[str, Any]]:
    """Requests before the write, and the VM that was written."""
    writer = PoolWriter(
        cluster,
        None,
        None,
        cluster,
        None,
    )
    action = Update(
        *("web-1", "u-web-1", 1, "r1", "r1", "its disks are restored"),
        restored=REQUEST,
        run_strategy=strategy,
        start=start,
    )
    await update(writer.writing(snapshot(3)), action)
    *requests, (kind, written) = cluster.asked
    assert kind == VMS.kind
    annotations = written["metadata"]["annotations"]
    assert annotations[meta.RESTORED] == REQUEST
    assert not annotations.keys() & {meta.RESTORE, meta.RUN_STRATEGY}
    return [verb for verb, _ in requests], {k: v for k, v in written["spec"].items() if k.startswith("run")}


@pytest.mark.parametrize(
    ("spec", "strategy", "start", "requests", "written"),
    [
        pytest.param({"runStrategy": "Halted"}, "Always", True, [], {"runStrategy": "Always"}, id="started again"),
        pytest.param({"running": False}, "Always", True, [], {"running": True}, id="by the older field"),
        pytest.param({"runStrategy": "Halted"}, "Halted", False, [], {"runStrategy": "Halted"}, id="it was halted"),
        pytest.param({"runStrategy": "Manual"}, "Manual", True, ["start"], {"runStrategy": "Manual"}, id="by request"),
        pytest.param({"runStrategy": "Manual"}, "Manual", False, [], {"runStrategy": "Manual"}, id="it did not run"),
    ],
)
async def test_the_run_strategy(
    spec: Any, strategy: str, start: bool, requests: list[str], written: dict[str, Any]
) -> None:
    assert await completed(Cluster(False, **spec), strategy, start) == (requests, written)


async def test_a_vm_that_a_first_try_has_started_is_not_an_error() -> None:
    requests, _ = await completed(Cluster(True, runStrategy="Manual"), "Manual", True)
    assert requests == ["start"]


async def test_the_datavolume_of_a_restored_disk_is_not_retained_any_more() -> None:
    """Its claim is a new one of KubeVirt, which the pool does not retain."""
    disk = {"metadata": {"name": "root-1"}}
    cluster = Cluster(False, runStrategy="Halted", dataVolumeTemplates=[disk])
    await completed(cluster, "Always", True)
    ((kind, name, change),) = cluster.patched
    assert (kind, name) == ("DataVolume", "root-1")
    assert (change["labels"][meta.KEPT_BY], change["labels"][meta.KEPT_FOR]) == (None, None)
    assert [each["uid"] for each in change["ownerReferences"]] == ["u-web-1"]
