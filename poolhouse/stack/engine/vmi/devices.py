"""Decides whether the devices of a running VMI must be plugged or unplugged, and reports them in the VMI's status."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.stack.engine.objects import VMI

READY = "Ready"
USER_NETWORK_ADDRESS = "10.0.2.15"
"""address of each guest in a network of QEMU's user mode, which it has for itself"""


@dataclass(frozen=True)
class DeviceReport:
    """The devices of a running domain."""

    targets: Mapping[str, str]
    """by name of the volume, the name of its disk for the hypervisor, such as vda"""
    nics: Mapping[str, str]
    """by name of the NIC, its MAC address"""
    problem: str = ""
    """why a device could not be plugged or unplugged"""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """by name of the NIC: its address, for NICs without QEMU's user-mode network"""


def needs_sync(vmi: VMI) -> bool:
    """Whether the status does not say yet that all devices of the VMI are plugged."""
    hot = {volume.name for volume in vmi.volumes if volume.hotpluggable}
    ready = {name for name, status in _hotplugged(vmi).items() if status.get("phase") == READY}
    reported = {each.get("name"): each.get("mac") for each in vmi.status.get("interfaces") or ()}
    plugged = reported.keys() - {*vmi.assigned}
    wanted = _wanted_nics(vmi)
    # Without a MAC address in the spec, the hypervisor chooses one.
    unknown = any(not reported.get(name) for name in wanted)
    return hot != ready or hot != _hotplugged(vmi).keys() or plugged != wanted or unknown


def is_done(vmi: VMI, report: DeviceReport, pending: Mapping[str, str]) -> bool:
    """Whether the domain has the VMI's devices, except volumes that are not ready."""
    hot = {volume.name for volume in vmi.volumes if volume.hotpluggable}
    wanted = _wanted_nics(vmi)
    unplugged = not any(name in report.targets for name in _hotplugged(vmi).keys() - hot)
    plugged = all(name in report.targets for name in hot - pending.keys())
    return not report.problem and set(report.nics) == wanted and plugged and unplugged


def device_status(vmi: VMI, report: DeviceReport, pending: Mapping[str, str]) -> Json:
    """The `volumeStatus` and `interfaces` of the VMI's status. `pending` has why volumes are not ready, by name."""
    statuses = [_volume_status(volume.name, volume.hotpluggable, volume.pvc, report, pending) for volume in vmi.volumes]
    named = {volume.name for volume in vmi.volumes}
    statuses += [
        {**status, "phase": "Detaching", "reason": "VolumeDetaching", "message": f"Volume {name} is being unplugged"}
        for name, status in _hotplugged(vmi).items()
        if name not in named and name in report.targets
    ]
    addresses = {each.get("name"): each for each in vmi.status.get("interfaces") or ()}
    present = {**dict.fromkeys(vmi.assigned, ""), **report.nics}
    nics = [(name, mac or present[name]) for name, mac in vmi.interfaces if name in present]
    return {
        "volumeStatus": sorted(statuses, key=lambda status: str(status["name"])),
        "interfaces": [
            interface_status(name, mac, report.addresses.get(name, "")) | addresses.get(name, {}) for name, mac in nics
        ],
    }


def _volume_status(name: str, hotpluggable: bool, pvc: str, report: DeviceReport, pending: Mapping[str, str]) -> Json:
    target = report.targets.get(name)
    status: Json = {"name": name, "persistentVolumeClaimInfo": {"claimName": pvc}}
    if target is not None:
        status["target"] = target
    if not hotpluggable:
        return status
    if name in pending:
        told = ("Pending", "PVCNotReady", pending[name])
    elif target is None:
        told = ("MountedToPod", "VolumeMountedToPod", f"Volume {name} has been mounted in virt-launcher pod")
    else:
        told = (READY, "VolumeReady", f"Successfully attach hotplugged volume {name} to VM")
    return {**status, "hotplugVolume": {}, **dict(zip(("phase", "reason", "message"), told, strict=True))}


def interface_status(name: str, mac: str, address: str = "") -> Json:
    given = {"name": name, "mac": mac, "ipAddress": address or USER_NETWORK_ADDRESS, "infoSource": "domain"}
    return {key: value for key, value in given.items() if value}


def _wanted_nics(vmi: VMI) -> set[str]:
    return {name for name, _ in vmi.interfaces} - {*vmi.absent, *vmi.assigned}


def _hotplugged(vmi: VMI) -> dict[str, Json]:
    statuses = vmi.status.get("volumeStatus") or ()
    return {str(status.get("name")): status for status in statuses if status.get("hotplugVolume") is not None}
