"""Reads the devices of a VMI spec that KubeVirt plugs into a running VM and unplugs from it.

The rules were read in KubeVirt's source at the tags v1.6.0, v1.7.0, v1.8.0 and v1.9.0-rc.2:

- NICs on a Multus network: `Sync` and `IsRestartRequired` in pkg/network/controllers/vm.go and
  pkg/network/vmliveupdate/restart.go. KubeVirt adds NICs with the binding `bridge` or `sriov`. It removes a NIC with
  `state: absent`, which its admission accepts for `bridge` only, and then takes the NIC out of the VM's template.
- Disks whose volume is `hotpluggable`: `HandleDeclarativeVolumes` in pkg/storage/hotplug/hotplug.go. A CD-ROM can get
  and lose its volume, but KubeVirt adds and removes no CD-ROM.

`syncNetworks` in vm.go also writes another `multus.networkName` into the VMI, with the feature gate LiveUpdateNADRef in
1.8 and always in 1.9, and the VMI then needs a migration (pkg/network/migration/evaluator.go). It compares the VMI with
the annotations of the launcher Pod. No field of the VMI says which network a NIC is on, so that nobody could tell from
it when the change has reached the guest: here, such a change needs a restart.

A device is a text here: `name` or `name down` for a NIC, and `name claim` for a disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kubevirt.meaning import text_of

Devices = tuple[str, ...]

VOLUME_SOURCES = {"persistentVolumeClaim": "claimName", "dataVolume": "name"}
"""fields with the source of a hotpluggable volume, and the fields in it with the name of the PVC"""
HOTPLUG_BUSES = ("scsi", "virtio")
ABSENT, DOWN, DOMAIN = "absent", "down", "domain"


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """A device in a template that KubeVirt plugs and unplugs."""

    name: str
    content: str
    """a hash of what KubeVirt does not change in a running VM"""
    removable: bool = True


def is_hotpluggable(volume: Json) -> bool:
    return any(at(volume, source, "hotpluggable") is True for source in VOLUME_SOURCES)


def nics_of(spec: Json | None) -> Devices:
    """The NICs that a VM with this VMI spec shall have."""
    return tuple(sorted(_nic(nic) for nic in _live_nics(spec) if nic.get("state") != ABSENT))


def disks_of(spec: Json | None) -> Devices:
    return tuple(sorted(f"{volume.get('name')} {_claim(volume)}" for volume in _live_volumes(spec)))


def shown_nics(spec: Json, status: Json) -> Devices:
    """The NICs that the domain of a VMI has."""
    reported = {str(each.get("name")): each for _, each in entries(status, "interfaces")}
    return tuple(
        sorted(
            _nic({**nic, "state": reported[name].get("linkState") or nic.get("state")})
            for nic in _live_nics(spec)
            if (name := str(nic.get("name"))) in reported and DOMAIN in _sources(reported[name])
        )
    )


def shown_disks(spec: Json, status: Json) -> Devices:
    """The hotpluggable disks that are ready in a VMI, and those which are not unplugged yet."""
    claims = {str(volume.get("name")): _claim(volume) for volume in _live_volumes(spec)}
    found = []
    for _, each in entries(status, "volumeStatus"):
        name = str(each.get("name"))
        if each.get("hotplugVolume") is not None and (name not in claims or each.get("phase") == "Ready"):
            found.append(f"{name} {at(each, 'persistentVolumeClaimInfo', 'claimName') or claims.get(name, '')}")
    return tuple(sorted(found))


def live_devices(meaning: Json) -> tuple[LiveDevice, ...]:
    """The devices of a VMI spec, in which each meaning has one spelling, for `may_follow`."""
    networks, disks = by_name(meaning, "networks"), by_name(meaning, "domain", "devices", "disks")
    nics = (
        LiveDevice(
            f"NIC {nic.get('name')}",
            _hash([_without(nic, "state"), networks[str(nic.get("name"))]]),
            nic.get("bridge") is not None,
        )
        for nic in _live_nics(meaning)
        if nic.get("state") != ABSENT
    )
    volumes = (str(volume.get("name")) for volume in _live_volumes(meaning))
    return (*nics, *(LiveDevice(f"disk {name}", _hash(disks.get(name))) for name in volumes))


def may_follow(before: tuple[LiveDevice, ...], after: tuple[LiveDevice, ...]) -> bool:
    """Whether KubeVirt can make a running VM with the former devices one with the latter."""
    wanted = {each.name: each.content for each in after}
    return all(wanted.get(each.name, each.content if each.removable else "") == each.content for each in before)


def without_absent_nics(spec: Json) -> Json:
    """A VMI spec without the NICs that KubeVirt takes out of it, and their networks."""
    absent = {str(nic.get("name")) for nic in _live_nics(spec) if nic.get("state") == ABSENT}
    return _without_nics(spec, absent) if absent else spec


def without_devices(spec: Json) -> Json:
    """A VMI spec without its NICs and disks that KubeVirt plugs and unplugs. It still says whether the template lists
    its NICs, because KubeVirt gives one to a VM without a list."""
    nics = {str(nic.get("name")) for nic in _live_nics(spec)}
    volumes = {str(volume.get("name")) for volume in _live_volumes(spec)}
    found = _without_nics(spec, nics) if nics else spec
    if at(spec, "domain", "devices", "interfaces") or spec.get("networks"):
        found = {**found, "listsNICs": True}
    disks = [
        disk
        for _, disk in entries(found, "domain", "devices", "disks")
        if disk.get("name") not in volumes or disk.get("cdrom") is not None
    ]
    kept = [volume for _, volume in entries(found, "volumes") if volume.get("name") not in volumes]
    return _without_empty(_with_devices({**found, "volumes": kept}, disks=disks))


def mark_absent(spec: Json, before: Json) -> Json:
    """A VMI spec in which the NICs that a running VM loses have `state: absent`. KubeVirt unplugs no others."""
    present = by_name(spec, "domain", "devices", "interfaces")
    lost = [nic for nic in _live_nics(before) if str(nic.get("name")) not in present and nic.get("bridge") is not None]
    if not lost:
        return spec
    networks, kept = by_name(before, "networks"), by_name(spec, "networks")
    kept |= {name: networks[name] for nic in lost if (name := str(nic["name"])) not in kept}
    nics = [*present.values(), *({**nic, "state": ABSENT} for nic in lost)]
    return _with_devices({**spec, "networks": list(kept.values())}, interfaces=nics)


def names_of(devices: Devices) -> frozenset[str]:
    return frozenset(each.partition(" ")[0] for each in devices)


def _live_nics(spec: Json | None) -> Iterator[Json]:
    multus = {
        str(network.get("name"))
        for _, network in entries(spec, "networks")
        if network.get("multus") is not None and at(network, "multus", "default") is not True
    }
    for _, nic in entries(spec, "domain", "devices", "interfaces"):
        if nic.get("name") in multus and (nic.get("bridge") is not None or nic.get("sriov") is not None):
            yield nic


def _live_volumes(spec: Json | None) -> Iterator[Json]:
    disks = by_name(spec, "domain", "devices", "disks")
    for _, volume in entries(spec, "volumes"):
        disk = disks.get(str(volume.get("name")))
        if disk is not None and is_hotpluggable(volume) and _is_pluggable(disk):
            yield volume


def _is_pluggable(disk: Json) -> bool:
    if disk.get("cdrom") is not None:
        return True
    if disk.get("lun") is not None:
        return bool(at(disk, "lun", "bus") == "scsi")
    bus: str | None = at(disk, "disk", "bus")
    return bus in HOTPLUG_BUSES


def _nic(nic: Json) -> str:
    return f"{nic.get('name')} {DOWN}" if nic.get("state") == DOWN else str(nic.get("name"))


def _claim(volume: Json) -> str:
    return next((str(name) for source, key in VOLUME_SOURCES.items() if (name := at(volume, source, key))), "")


def _sources(reported: Json) -> list[str]:
    return str(reported.get("infoSource") or "").split(", ")


def _without_nics(spec: Json, names: set[str]) -> Json:
    kept = [each for _, each in entries(spec, "domain", "devices", "interfaces") if str(each.get("name")) not in names]
    networks = [each for _, each in entries(spec, "networks") if str(each.get("name")) not in names]
    return _with_devices({**spec, "networks": networks}, interfaces=kept)


def _with_devices(spec: Json, **lists: list[Json]) -> Json:
    domain = spec.get("domain") or {}
    return {**spec, "domain": {**domain, "devices": {**(domain.get("devices") or {}), **lists}}}


def _without_empty(spec: Json) -> Json:
    """A template without devices may or may not have the lists."""
    devices = {name: each for name, each in spec["domain"]["devices"].items() if each != []}
    domain = {**_without(spec["domain"], "devices"), **({"devices": devices} if devices else {})}
    return {**{name: each for name, each in spec.items() if each != []}, "domain": domain}


def by_name(spec: Json | None, *path: str) -> dict[str, Json]:
    return {str(item.get("name")): item for _, item in entries(spec, *path)}


def _without(item: Json, name: str) -> Json:
    return {key: value for key, value in item.items() if key != name}


def _hash(value: object) -> str:
    return hashlib.sha256(text_of(value).encode()).hexdigest()[:16]
