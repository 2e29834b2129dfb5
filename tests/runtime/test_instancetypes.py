from __future__ import annotations

from typing import Any

import pytest

from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.resource import Resource

Json = dict[str, Any]

API_VERSION = "instancetype.kubevirt.io/v1beta1"
WINDOWS = {"apiVersion": API_VERSION, "spec": {"devices": {"preferredDiskBus": "sata"}}}
LARGE = {"apiVersion": API_VERSION, "spec": {"cpu": {"guest": 8}}}
KEPT = {"apiVersion": API_VERSION, "spec": {"devices": {"preferredDiskBus": "scsi"}}}


def revision(of: str) -> Json:
    return {"metadata": {"labels": {"instancetype.kubevirt.io/object-name": of}}, "data": KEPT}


class FakeApi:
    """Answers `get` from objects by plural, namespace and name."""

    def __init__(self, **errors: Exception) -> None:
        self.read: list[tuple[str, str | None, str]] = []
        self.errors = errors
        self.objects: dict[tuple[str, str, str], Json] = {
            ("virtualmachineclusterpreferences", "", "windows"): WINDOWS,
            ("virtualmachinepreferences", "ns", "windows"): KEPT,
            ("virtualmachineclusterinstancetypes", "", "large"): LARGE,
            ("virtualmachineinstancetypes", "ns", "large"): LARGE,
            ("virtualmachineclusterpreferences", "", "old"): {
                **WINDOWS,
                "apiVersion": "instancetype.kubevirt.io/v1alpha1",
            },
            ("controllerrevisions", "ns", "r1"): revision("windows"),
            ("controllerrevisions", "ns", "r2"): revision("linux"),
        }

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        self.read.append((resource.plural, namespace, name))
        if resource.plural in self.errors:
            raise self.errors[resource.plural]
        found = self.objects.get((resource.plural, namespace or "" if resource.namespaced else "", name))
        if found is None:
            raise NotFound(f"{name} not found", status=404)
        return found


def reader(api: Any, now: float = 0.0) -> InstancetypeReader:
    return InstancetypeReader(api, lambda: now)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"preference": {"name": "windows"}}, {"preference": WINDOWS["spec"]}),
        ({"preference": {"name": "windows", "kind": "VirtualMachinePreference"}}, {"preference": KEPT["spec"]}),
        ({"preference": {"name": "windows", "kind": "virtualmachinepreferences"}}, {"preference": KEPT["spec"]}),
        (
            {
                "preference": {"name": "windows", "kind": "virtualmachineclusterpreference"},
                "instancetype": {"name": "large"},
            },
            {"preference": WINDOWS["spec"], "instancetype": LARGE["spec"]},
        ),
        ({"instancetype": {"name": "large", "kind": "VirtualMachineInstancetype"}}, {"instancetype": LARGE["spec"]}),
        ({"preference": {"name": "windows", "revisionName": "r1"}}, {"preference": KEPT["spec"]}),
    ],
)
async def test_the_specs_that_a_vm_names(spec: Json, expected: Json) -> None:
    assert await reader(FakeApi()).read({"spec": spec}, "ns") == expected


@pytest.mark.parametrize(("name", "bus"), [("r1", "scsi"), ("r2", "sata")])
async def test_a_revision_in_the_status_counts_only_for_the_same_name(name: str, bus: str) -> None:
    status = {"preferenceRef": {"name": "windows", "controllerRevisionRef": {"name": name}}}
    found = await reader(FakeApi()).read({"spec": {"preference": {"name": "windows"}}, "status": status}, "ns")
    assert found["preference"]["devices"]["preferredDiskBus"] == bus


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        ({"name": "linux"}, "the VirtualMachineClusterPreference linux does not exist"),
        ({"name": "windows", "revisionName": "r9"}, "the ControllerRevision r9 does not exist"),
        ({"inferFromVolume": "root"}, "spec.preference has no name yet; KubeVirt infers it from a volume"),
        ({"name": "old"}, "the VirtualMachineClusterPreference old is not of instancetype.kubevirt.io/v1beta1"),
        (
            {"name": "windows", "kind": "ConfigMap"},
            "spec.preference.kind is 'ConfigMap', which is neither VirtualMachinePreference nor"
            " VirtualMachineClusterPreference",
        ),
    ],
)
async def test_the_cause_says_why_a_preference_is_unknown(matcher: Json, message: str) -> None:
    vm = {"spec": {"preference": matcher, "instancetype": {"name": "large"}}}
    assert await reader(FakeApi()).read(vm, "ns") == {"instancetype": LARGE["spec"], "unread": message}


async def test_a_missing_right_is_a_cause() -> None:
    api = FakeApi(virtualmachineclusterpreferences=Forbidden("no", status=403))
    found = await reader(api).read({"spec": {"preference": {"name": "windows"}}}, "ns")
    assert found == {"unread": "the VirtualMachineClusterPreference windows cannot be read: 403: no"}


async def test_the_vms_of_a_pool_share_a_read() -> None:
    api, now = FakeApi(), [10.0]
    several = InstancetypeReader(api, lambda: now[0])
    vm = {"spec": {"preference": {"name": "windows"}}}
    for _ in range(3):
        await several.read(vm, "ns")
    assert len(api.read) == 1
    now[0] += 1
    await several.read(vm, "ns")
    assert len(api.read) == 2


async def test_an_object_that_does_not_exist_is_read_again() -> None:
    api = FakeApi()
    vm = {"spec": {"preference": {"name": "linux"}}}
    one = reader(api)
    assert "unread" in await one.read(vm, "ns")
    api.objects["virtualmachineclusterpreferences", "", "linux"] = WINDOWS
    assert "preference" in await one.read(vm, "ns")
