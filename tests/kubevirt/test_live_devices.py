"""Which NICs and disks KubeVirt plugs into running VMs. Each row is a sentence about KubeVirt."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt import live_updates
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_devices import (
    disks_of,
    live_devices,
    mark_absent,
    may_follow,
    nics_of,
    without_absent_nics,
    without_devices,
)

Json = dict[str, Any]
BRIDGE: Json = {"bridge": {}}
DISK: Json = {"disk": {"bus": "virtio"}}
CDROM: Json = {"cdrom": {"bus": "sata"}}
METHODS = frozenset({"LiveMigrate"})


def spec(nics: Json | None = None, disks: Json | None = None, claims: Json | None = None, **others: Any) -> Json:
    """A VMI spec with a NIC on the pod network, NICs on Multus networks, disks, and hotpluggable volumes for them."""
    nics, disks, claims = nics or {}, disks or {}, claims or {}
    interfaces = [{"name": "default", "masquerade": {}}, *({"name": name, **nic} for name, nic in nics.items())]
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
        for name, claim in claims.items()
    ]
    return {
        "networks": [{"name": "default", "pod": {}}, *({"name": n, "multus": {"networkName": n}} for n in nics)],
        "volumes": volumes,
        "domain": {"devices": {"interfaces": interfaces, "disks": [{"name": n, **disk} for n, disk in disks.items()]}},
        **others,
    }


def is_live(before: Json, after: Json) -> bool:
    same = live_updates.without_fields(without_devices(before)) == live_updates.without_fields(without_devices(after))
    return same and may_follow(live_devices(before), live_devices(after))


BLUE = spec({"blue": BRIDGE})
DATA = spec(disks={"data": DISK}, claims={"data": "a"})


@pytest.mark.parametrize(
    ("before", "after", "live"),
    [
        pytest.param(spec(), BLUE, True, id="a NIC with the binding bridge is added"),
        pytest.param(spec(), spec({"blue": {"sriov": {}}}), True, id="a NIC with SR-IOV is added"),
        pytest.param(spec(), spec({"blue": {"binding": {"name": "l2"}}}), False, id="no NIC of a plugin is added"),
        pytest.param(BLUE, spec(), True, id="a NIC is removed"),
        pytest.param(BLUE, spec({"blue": BRIDGE | {"state": "absent"}}), True, id="a NIC is removed by its state"),
        pytest.param(spec({"blue": {"sriov": {}}}), spec(), False, id="no NIC with SR-IOV is removed"),
        pytest.param(BLUE, spec({"blue": BRIDGE | {"state": "down"}}), True, id="a link goes down"),
        pytest.param(BLUE, spec({"blue": BRIDGE | {"model": "e1000"}}), False, id="a NIC does not change"),
        pytest.param(BLUE, spec({"red": BRIDGE}), True, id="one goes and one comes"),
        pytest.param(spec(), DATA, True, id="a hotpluggable disk is added"),
        pytest.param(DATA, spec(), True, id="a hotpluggable disk is removed"),
        pytest.param(DATA, spec(disks={"data": DISK}, claims={"data": "b"}), True, id="a disk gets another claim"),
        pytest.param(
            spec(), spec(disks={"data": {"disk": {"bus": "sata"}}}, claims={"data": "a"}), False, id="no SATA disk"
        ),
        pytest.param(
            DATA, spec(disks={"data": DISK | {"serial": "1"}}, claims={"data": "a"}), False, id="no change of a serial"
        ),
        pytest.param(
            spec(disks={"cd": CDROM}),
            spec(disks={"cd": CDROM}, claims={"cd": "iso"}),
            True,
            id="a CD-ROM gets a volume",
        ),
        pytest.param(
            spec(disks={"cd": CDROM}, claims={"cd": "iso"}), spec(disks={"cd": CDROM}), True, id="a CD-ROM is emptied"
        ),
        pytest.param(spec(), spec(disks={"cd": CDROM}, claims={"cd": "iso"}), False, id="no CD-ROM is added"),
        pytest.param(
            {"domain": {}},
            {key: value for key, value in DATA.items() if key == "volumes"}
            | {"domain": {"devices": {"disks": [{"name": "data", **DISK}]}}},
            True,
            id="the first disk",
        ),
        pytest.param({}, {key: value for key, value in BLUE.items() if key == "networks"}, False, id="the first list"),
    ],
)
def test_what_kubevirt_plugs(before: Json, after: Json, live: bool) -> None:
    assert is_live(before, after) is live


def test_an_absent_nic_is_no_difference() -> None:
    absent = spec({"blue": BRIDGE | {"state": "absent"}})
    assert nics_of(absent) == nics_of(spec()) == ()
    assert without_absent_nics(absent) == spec()


def test_a_nic_that_a_running_vm_loses_is_marked() -> None:
    users = spec({"green": BRIDGE})
    marked = mark_absent(spec(), BLUE)
    assert marked == spec({"blue": BRIDGE | {"state": "absent"}})
    assert mark_absent(users, users) == users
    assert mark_absent(spec(), spec({"blue": {"sriov": {}}})) == spec()


def vmi(of: Json, **status: Any) -> Json:
    return {"spec": of, "status": status}


def interface(name: str, source: str, **more: Any) -> Json:
    return {"name": name, "infoSource": source, **more}


@pytest.mark.parametrize(
    ("found", "wanted", "accepted", "shown"),
    [
        pytest.param(vmi(spec()), BLUE, False, False, id="not accepted"),
        pytest.param(vmi(BLUE), BLUE, True, False, id="accepted"),
        pytest.param(
            vmi(BLUE, interfaces=[interface("blue", "multus-status")]), BLUE, True, False, id="on its network"
        ),
        pytest.param(
            vmi(BLUE, interfaces=[interface("blue", "domain, guest-agent")]), BLUE, True, True, id="in the domain"
        ),
        pytest.param(
            vmi(spec({"blue": BRIDGE | {"state": "absent"}}), interfaces=[interface("blue", "domain")]),
            spec(),
            True,
            False,
            id="a NIC that still is in the domain",
        ),
        pytest.param(
            vmi(spec({"blue": BRIDGE | {"state": "absent"}}), interfaces=[interface("blue", "multus-status")]),
            spec(),
            True,
            True,
            id="the guest has lost it, and the Pod has not",
        ),
        pytest.param(
            vmi(spec({"blue": BRIDGE | {"state": "down"}}), interfaces=[interface("blue", "domain", linkState="up")]),
            spec({"blue": BRIDGE | {"state": "down"}}),
            True,
            False,
            id="a link that is still up",
        ),
    ],
)
def test_how_a_guest_shows_a_plugged_nic(found: Json, wanted: Json, accepted: bool, shown: bool) -> None:
    field = next(each for each in live_updates.FIELDS if each.name == "nics")
    fields, guest = live_updates.read_fields(wanted), live_updates.read_guest(found)
    assert live_updates.is_accepted([field], fields, guest) is accepted
    assert live_updates.shows([field], fields, guest) is shown


def test_what_says_that_a_disk_is_plugged() -> None:
    field = next(each for each in live_updates.FIELDS if each.name == "disks")
    wanted = live_updates.read_fields(DATA)

    def shows(of: Json, phase: str) -> bool:
        claim = {"persistentVolumeClaimInfo": {"claimName": "a"}}
        told = {"name": "data", "phase": phase, "hotplugVolume": {}, **claim}
        return live_updates.shows([field], wanted, live_updates.read_guest(vmi(of, volumeStatus=[told])))

    assert disks_of(DATA) == ("data a",)
    assert not shows(DATA, "MountedToPod")
    assert shows(DATA, "Ready")
    gone = live_updates.read_guest(
        vmi(spec(), volumeStatus=[{"name": "data", "hotplugVolume": {}, "phase": "Detaching"}])
    )
    assert not live_updates.shows([field], live_updates.read_fields(spec()), gone)


@pytest.mark.parametrize(
    ("of", "settings", "expected"),
    [
        pytest.param("nics", ClusterSettings(versions=("v1.6.0",), rollout_strategy="Stage"), "", id="NICs with Stage"),
        pytest.param("nics", ClusterSettings(versions=("v1.5.2",)), "since 1.6", id="NICs in 1.5"),
        pytest.param("disks", ClusterSettings(versions=("v1.9.0",)), "", id="disks in 1.9"),
        pytest.param("disks", ClusterSettings(versions=("v1.8.0",)), "DeclarativeHotplugVolumes of", id="disks in 1.8"),
        pytest.param(
            "disks",
            ClusterSettings(versions=("v1.9.0",), feature_gates=frozenset({"HotplugVolumes"})),
            "HotplugVolumes of the KubeVirt object is on",
            id="the older gate turns the newer one off",
        ),
    ],
)
def test_releases_and_gates(of: str, settings: ClusterSettings, expected: str) -> None:
    field = next(each for each in live_updates.FIELDS if each.name == of)
    assert expected in field.cluster(settings) if expected else field.cluster(settings) == ""


@pytest.mark.parametrize(
    ("vm", "guest", "template", "behind"),
    [
        pytest.param(BLUE, spec(), BLUE, ["nics"], id="a NIC of the template"),
        pytest.param(BLUE, spec(), spec(), [], id="a NIC that a user has plugged"),
        pytest.param(spec(), BLUE, spec(), ["nics"], id="a NIC that KubeVirt still has to unplug"),
        pytest.param(spec(), DATA, spec(), [], id="a disk that a user has plugged into the VMI"),
        pytest.param(DATA, spec(), DATA, ["disks"], id="a disk of the template"),
    ],
)
def test_which_fields_are_behind_after_a_change_is_taken_back(
    vm: Json, guest: Json, template: Json, behind: list[str]
) -> None:
    fields = (live_updates.read_fields(each) for each in (vm, template))
    found = live_updates.behind(*fields, live_updates.read_guest(vmi(guest)))
    assert [each.name for each in found] == behind


def test_changes_are_named() -> None:
    nics, disks = (next(each for each in live_updates.FIELDS if each.name == name) for name in ("nics", "disks"))
    before, after = live_updates.read_fields(BLUE), live_updates.read_fields(spec({"red": BRIDGE}))
    assert nics.describe(before, after) == "NIC blue removed, NIC red added"
    other = live_updates.read_fields(spec(disks={"data": DISK}, claims={"data": "b"}))
    assert disks.describe(live_updates.read_fields(DATA), other) == "disk data changed"
