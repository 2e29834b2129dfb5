"""The devices in the status of a running VMI."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.stack.engine.objects import Volume
from poolhouse.stack.engine.vmi import phases
from poolhouse.stack.engine.vmi.devices import DeviceReport, device_status, is_done, needs_sync
from tests.stack.engine.builders import NOW, vmi

Json = dict[str, Any]

ROOT, DATA = Volume("root", False, "root"), Volume("claim", False, "data", hotpluggable=True)
NET = (("net", "52:54:00:00:00:01"),)
READY: Json = {"name": "data", "hotplugVolume": {}, "phase": "Ready", "target": "vdb"}
REPORTED = {"name": "net", "mac": "52:54:00:00:00:01"}
PLUGGED: Json = {"interfaces": [REPORTED], "volumeStatus": [READY]}
NICS = {"net": "02:00:00:00:00:01"}
BOTH = DeviceReport({"root": "vda", "data": "vdb"}, NICS)


@pytest.mark.parametrize(
    ("changes", "status", "needed"),
    [
        pytest.param({}, {"interfaces": [REPORTED]}, False, id="nothing is hotplugged"),
        pytest.param({}, {"interfaces": [{"name": "net"}]}, True, id="the MAC address is not reported"),
        pytest.param({"assigned": ("net",)}, {"interfaces": [{"name": "net"}]}, False, id="a device of the node"),
        pytest.param({"volumes": (ROOT, DATA)}, {"interfaces": [REPORTED]}, True, id="a new volume"),
        pytest.param({"volumes": (ROOT, DATA)}, PLUGGED, False, id="a volume that is ready"),
        pytest.param({}, PLUGGED, True, id="a removed volume"),
        pytest.param({}, {}, True, id="a new NIC"),
        pytest.param({"absent": ("net",)}, {"interfaces": [REPORTED]}, True, id="an absent NIC"),
        pytest.param({"absent": ("net",)}, {"interfaces": []}, False, id="an unplugged NIC"),
    ],
)
def test_a_vmi_is_synced_until_its_status_shows_its_devices(changes: Json, status: Json, needed: bool) -> None:
    assert needs_sync(vmi(**{"volumes": (ROOT,), "interfaces": NET, "status": status} | changes)) == needed


@pytest.mark.parametrize(
    ("changes", "report", "pending", "phase"),
    [
        pytest.param({}, BOTH, {}, "Ready", id="attached"),
        pytest.param({}, DeviceReport({"root": "vda"}, {}), {"data": "not bound"}, "Pending", id="its PVC is pending"),
        pytest.param({}, DeviceReport({"root": "vda"}, {}, "no"), {}, "MountedToPod", id="it cannot be attached"),
        pytest.param({"volumes": (ROOT,)}, BOTH, {}, "Detaching", id="the guest has not released it"),
        pytest.param({"volumes": (ROOT,)}, DeviceReport({"root": "vda"}, {}), {}, None, id="detached"),
    ],
)
def test_phases_of_a_hotplugged_volume(changes: Json, report: DeviceReport, pending: Json, phase: str | None) -> None:
    given = {"volumes": (ROOT, DATA), "interfaces": NET, "status": PLUGGED} | changes
    found = {each["name"]: each for each in device_status(vmi(**given), report, pending)["volumeStatus"]}
    assert found.get("data", {}).get("phase") == phase
    assert found["root"] == {"name": "root", "target": "vda", "persistentVolumeClaimInfo": {"claimName": "root"}}


def test_only_plugged_nics_are_reported() -> None:
    given = vmi(volumes=(), interfaces=(*NET, ("more", "")), status=PLUGGED)
    status = device_status(given, DeviceReport({}, NICS), {})
    assert [each["name"] for each in status["interfaces"]] == ["net"]


@pytest.mark.parametrize(
    ("report", "pending", "done"),
    [
        pytest.param(BOTH, {}, True, id="all is plugged"),
        pytest.param(replace(BOTH, problem="no"), {}, False, id="a device was refused"),
        pytest.param(DeviceReport({"root": "vda"}, NICS), {}, False, id="a disk is missing"),
        pytest.param(DeviceReport({"root": "vda"}, NICS), {"data": "why"}, True, id="its PVC will wake the engine"),
        pytest.param(
            DeviceReport(BOTH.targets, {**NICS, "old": "02:00:00:00:00:02"}), {}, False, id="a NIC is still there"
        ),
        pytest.param(DeviceReport({**BOTH.targets, "old": "vdc"}, NICS), {}, False, id="a disk is still there"),
    ],
)
def test_a_hotplug_is_tried_again_until_it_is_done(report: DeviceReport, pending: Json, done: bool) -> None:
    old = {**READY, "name": "old"}
    given = vmi(volumes=(ROOT, DATA), interfaces=NET, status={**PLUGGED, "volumeStatus": [READY, old]})
    assert is_done(given, report, pending) == done


def test_a_refused_hotplug_is_a_condition_until_it_succeeds() -> None:
    given = vmi(volumes=(ROOT, DATA), interfaces=NET)
    failed = phases.synced_devices(given, NOW, replace(BOTH, problem="double use"), {})
    said = {each["type"]: each for each in failed["conditions"]}
    assert said["Synchronized"]["message"] == "double use"
    assert said["Ready"]["status"] == "True"
    later = replace(given, status=failed)
    assert [each["type"] for each in phases.unsynchronized(later)] == ["Synchronized"]
    healed = phases.synced_devices(later, NOW, BOTH, {})
    assert "Synchronized" not in {each["type"] for each in healed["conditions"]}
