"""The checks of what others do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.histories.api_server import ApiServer, Change
from tests.histories.others import lost_disk, shared_disks, touched
from tests.histories.world import BEGINNING

Json = dict[str, Any]

CONTROLLERS, ENGINE, USERS, COLLECTOR = "controllers-1", "engine", "users", "garbage-collector"
OWNER = {"kind": "VirtualMachine", "name": "web-1", "uid": "vm"}
VMS, VMIS, PVCS = "virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io", "persistentvolumeclaims"
RESTORES, CONTENTS = (f"virtualmachine{each}.snapshot.kubevirt.io" for each in ("restores", "snapshotcontents"))


def thing(name: str = "web-1", **metadata: Any) -> Json:
    return {"metadata": {"namespace": "here", "name": name, "uid": name, **metadata}}


def vm(name: str, disk: str, source: str = "dataVolume") -> Json:
    volume = {source: {"name" if source == "dataVolume" else "claimName": disk}}
    return {**thing(name), "spec": {"template": {"spec": {"volumes": [volume]}}}}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(Change(CONTROLLERS, PVCS, thing(), None), True, id="the controllers delete it"),
        pytest.param(Change(COLLECTOR, PVCS, thing(), None), True, id="the garbage collector deletes it"),
        pytest.param(Change(COLLECTOR, PVCS, thing(ownerReferences=[OWNER]), None), False, id="its owner is gone"),
        pytest.param(Change(USERS, PVCS, thing(), None), False, id="a user deletes it"),
        pytest.param(Change(CONTROLLERS, PVCS, thing(), thing(labels={})), False, id="it is written"),
        pytest.param(Change(CONTROLLERS, VMS, thing(), None), False, id="it is no disk"),
    ],
)
def test_a_disk_without_an_owner_that_is_deleted_is_found(change: Change, found: bool) -> None:
    assert bool(lost_disk(ApiServer(lambda: BEGINNING), change)) is found


@pytest.mark.parametrize(
    ("disk", "complete", "found"),
    [
        pytest.param("data", False, False, id="for a restore of its snapshot"),
        pytest.param("data", True, True, id="after the restore"),
        pytest.param("other", False, True, id="for a restore of another disk"),
    ],
)
def test_kubevirt_may_delete_a_disk_that_it_restores(disk: str, complete: bool, found: bool) -> None:
    server, snapshot = ApiServer(lambda: BEGINNING), {"virtualMachineSnapshotName": "before"}
    restore = {**thing(), "spec": snapshot, "status": {"complete": complete}}
    content = {**thing(), "spec": {**snapshot, "volumeBackups": [{"persistentVolumeClaim": thing(disk)}]}}
    server._objects = {RESTORES: {("here", "web-1"): restore}, CONTENTS: {("here", "web-1"): content}}
    assert bool(lost_disk(server, Change(ENGINE, PVCS, thing("data"), None))) is found


@pytest.mark.parametrize(
    ("created", "found"),
    [
        pytest.param(vm("web-2", "data"), True, id="by a DataVolume"),
        pytest.param(vm("web-2", "data", "persistentVolumeClaim"), True, id="by a claim"),
        pytest.param(vm("web-2", "other"), False, id="another disk"),
    ],
)
def test_a_vm_that_is_created_with_the_disk_of_another_is_found(created: Json, found: bool) -> None:
    server = ApiServer(lambda: BEGINNING)
    server._objects[VMS] = {("here", "web-1"): vm("web-1", "data")}
    assert bool(list(shared_disks(server, Change(CONTROLLERS, VMS, None, created)))) is found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(Change(CONTROLLERS, VMS, thing(), thing(labels={})), True, id="a VM is written"),
        pytest.param(Change(CONTROLLERS, VMS, None, thing()), True, id="a VM is created"),
        pytest.param(Change(CONTROLLERS, VMIS, thing(), None), True, id="a VMI is deleted"),
        pytest.param(Change(ENGINE, PVCS, None, thing()), True, id="a disk is created"),
        pytest.param(Change(CONTROLLERS, "controllerrevisions.apps", None, thing()), True, id="a revision is created"),
        pytest.param(Change(ENGINE, VMIS, thing(), None), False, id="a guest crashes"),
        pytest.param(Change(ENGINE, VMS, thing(), thing(labels={})), False, id="KubeVirt writes a status"),
        pytest.param(Change(USERS, VMS, thing(), None), False, id="a user deletes a VM"),
    ],
)
def test_the_search_finds_respellings_that_change_something(change: Change, found: bool) -> None:
    assert bool(touched(ApiServer(lambda: BEGINNING), change)) is found


def test_a_restart_that_the_pool_requests_after_a_respelling_is_found() -> None:
    server = ApiServer(lambda: BEGINNING)
    server._objects[VMS] = {("here", "web-1"): thing() | {"status": {"stateChangeRequests": [{"action": "Stop"}]}}}
    assert touched(server, Change(ENGINE, VMIS, thing(), None))
