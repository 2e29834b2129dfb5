"""Hotplugs devices of a running VM: computes how its VMI follows the VM's template. The rules are those of KubeVirt.

KubeVirt hotplugs disks whose volume is `hotpluggable`, and NICs with the binding `bridge`. It unplugs a disk that is
removed from the template, and a NIC with `state: absent`. Every other change waits for a restart.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, entries, without_nulls
from poolhouse.api.kubevirt.live_devices import ABSENT, HOTPLUG_BUSES, VOLUME_SOURCES, by_name, is_hotpluggable

POD_NETWORK = ("", "on the pod network")
NIC = "nic "


class HotplugRefused(Exception):
    """virt-api would refuse the change of the VMI."""


def plugged_devices(spec: Json) -> tuple[str, ...]:
    """A text for each hotpluggable volume and each NIC of a VMI spec. Two specs with the same texts need no hotplug."""
    volumes = (f"volume {_hash(volume)}" for _, volume in entries(spec, "volumes") if is_hotpluggable(volume))
    listed = entries(spec, "domain", "devices", "interfaces")
    nics = (f"{NIC}{nic.get('name')} {nic.get('state') or ''}" for _, nic in listed)
    return tuple(sorted((*volumes, *nics)))


def needs_hotplug(vm: tuple[str, ...], vmi: tuple[str, ...] | None) -> bool:
    """Whether the devices of a VM and its VMI differ, or the VM has an absent NIC. `vmi` is None without a VMI."""
    return (vmi is not None and vm != vmi) or any(text.endswith(f" {ABSENT}") for text in vm)


def lists_nics(spec: Json) -> bool:
    """Whether a VM's template lists NICs or networks. If it lists neither, KubeVirt adds a NIC to each VMI."""
    return bool(at(spec, "domain", "devices", "interfaces") or spec.get("networks"))


def restarting_parts(spec: Json) -> Json:
    """The VMI spec without its NICs and hotpluggable disks, whose changes need no restart."""
    hotpluggable = {volume.get("name") for _, volume in entries(spec, "volumes") if is_hotpluggable(volume)}
    devices = at(spec, "domain", "devices") or {}
    disks = [disk for _, disk in entries(devices, "disks") if disk.get("name") not in hotpluggable]
    kept = {name: value for name, value in devices.items() if name != "interfaces"}
    return {
        **{name: value for name, value in spec.items() if name != "networks"},
        "volumes": [volume for _, volume in entries(spec, "volumes") if volume.get("name") not in hotpluggable],
        "domain": {**(spec.get("domain") or {}), "devices": {**kept, "disks": disks}},
    }


def nic_hashes(spec: Json) -> tuple[tuple[str, str], ...]:
    """The name of each NIC with a hash of its fields that need a restart: all but its state and its Multus network."""
    networks = {str(network.get("name")): network for _, network in entries(spec, "networks")}
    found = []
    for name, nic in by_name(spec, "domain", "devices", "interfaces").items():
        network = dict(networks.get(name) or {})
        if isinstance(network.get("multus"), dict):
            network["multus"] = {key: value for key, value in network["multus"].items() if key != "networkName"}
        found.append((name, _hash([{key: value for key, value in nic.items() if key != "state"}, network])))
    if any(network.get("pod") is not None for network in networks.values()):
        found.append(POD_NETWORK)
    return tuple(found)


def nics_require_restart(vm: Iterable[tuple[str, str]], vmi: Iterable[tuple[str, str]]) -> bool:
    """Whether a NIC of the VMI has been removed from the VM or changed, or only the VM is on the pod network."""
    wanted, present = dict(vm), dict(vmi)
    changed = any(wanted.get(name) != value for name, value in present.items())
    return changed or (POD_NETWORK[0] in wanted and POD_NETWORK[0] not in present)


def plan_vmi(template: Json, vmi: Json, status: Json) -> Json:
    """The merge patch of the VMI's spec; empty if nothing is plugged or unplugged. Raises `HotplugRefused`."""
    template, vmi = without_nulls(template), without_nulls(vmi)
    volumes = _follow_volumes(template, vmi, status)
    names = {volume.get("name") for volume in volumes}
    disks = _follow_disks(template, vmi, names, {volume["name"] for volume in volumes if is_hotpluggable(volume)})
    nics = [nic for nic in _follow_nics(template, vmi) if nic.get("state") != ABSENT or _is_reported(nic, status)]
    named = {nic.get("name") for nic in nics}
    networks = {**by_name(template, "networks"), **by_name(vmi, "networks")}
    wanted: Json = {"volumes": volumes, "networks": [networks[name] for name in networks if name in named]}
    devices = {"disks": disks, "interfaces": nics}
    patch = {name: value for name, value in wanted.items() if value != (vmi.get(name) or [])}
    before = at(vmi, "domain", "devices") or {}
    if changed := {name: value for name, value in devices.items() if value != (before.get(name) or [])}:
        patch["domain"] = {"devices": changed}
    return patch


def add_volume(spec: Json, options: Json) -> Json:
    """The merge patch of a VMI spec by a request `addvolume`. Raises `ValueError` if virt-api refuses the request."""
    name, source = options["name"], options["volumeSource"]
    kind = next((kind for kind in VOLUME_SOURCES if isinstance(source.get(kind), dict)), None)
    volumes = [volume for _, volume in entries(spec, "volumes")]
    if any(volume.get("name") == name for volume in volumes):
        raise ValueError(f"Unable to add volume [{name}] because volume with that name already exists")
    if kind is None:
        raise ValueError(f"Unable to add volume [{name}]: its source must be a PersistentVolumeClaim or a DataVolume")
    backing = source[kind].get(VOLUME_SOURCES[kind])
    if any(at(volume, each, VOLUME_SOURCES[each]) == backing for volume in volumes for each in VOLUME_SOURCES):
        raise ValueError(f"Unable to add volume source [{backing}] because it already exists")
    volume = {"name": name, kind: {**source[kind], "hotpluggable": True}}
    disks = [disk for _, disk in entries(spec, "domain", "devices", "disks")]
    disk = {**options["disk"], "name": name}
    return {"volumes": [*volumes, volume], "domain": {"devices": {"disks": [*disks, disk]}}}


def remove_volume(spec: Json, name: str) -> Json:
    """The merge patch of a VMI spec by a request `removevolume`. Raises `ValueError` if virt-api refuses it."""
    volume = by_name(spec, "volumes").get(name)
    if volume is None:
        raise ValueError(f"Unable to remove volume [{name}] because it does not exist")
    if not is_hotpluggable(volume):
        raise ValueError(f"Unable to remove volume [{name}] because it is not hotpluggable")
    volumes = [each for _, each in entries(spec, "volumes") if each.get("name") != name]
    disks = [disk for _, disk in entries(spec, "domain", "devices", "disks") if disk.get("name") != name]
    return {"volumes": volumes, "domain": {"devices": {"disks": disks}}}


def plan_vm(template: Json, vmi: Json | None, status: Json) -> Json:
    """The merge patch of the template's spec that removes absent NICs which are unplugged; empty if there is none."""
    plugged = by_name(vmi or {}, "domain", "devices", "interfaces")
    nics = list(by_name(template, "domain", "devices", "interfaces").values())
    kept = [
        nic for nic in nics if nic.get("state") != ABSENT or nic.get("name") in plugged or _is_reported(nic, status)
    ]
    if kept == nics:
        return {}
    named = {nic.get("name") for nic in kept}
    networks = [network for _, network in entries(template, "networks") if network.get("name") in named]
    return {"networks": networks, "domain": {"devices": {"interfaces": kept}}}


def _follow_volumes(template: Json, vmi: Json, status: Json) -> list[Json]:
    wanted, present = by_name(template, "volumes"), by_name(vmi, "volumes")

    def stays(name: str, volume: Json) -> bool:
        now = wanted.get(name)
        return not is_hotpluggable(volume) or now == volume or (now is not None and not is_hotpluggable(now))

    kept = [volume for name, volume in present.items() if stays(name, volume)]
    # A volume that is still being unplugged is plugged again later.
    busy = {each.get("name") for _, each in entries(status, "volumeStatus")}
    added = (
        volume
        for name, volume in wanted.items()
        if is_hotpluggable(volume) and name not in present and name not in busy
    )
    return [*kept, *added]


def _follow_disks(template: Json, vmi: Json, volumes: set[Any], hotpluggable: set[Any]) -> list[Json]:
    wanted, present = (by_name(spec, "domain", "devices", "disks") for spec in (template, vmi))
    gone = {name for name in present if name not in volumes and present[name].get("cdrom") is None}
    added = [disk for name, disk in wanted.items() if name in hotpluggable and name not in present]
    for disk in added:
        _check(disk)
    return [*(disk for name, disk in present.items() if name not in gone), *added]


def _check(disk: Json) -> None:
    kind = "lun" if disk.get("lun") is not None else "disk"
    bus, name = at(disk, kind, "bus") or "", disk.get("name")
    if disk.get("cdrom") is not None:
        raise HotplugRefused(
            f"Hotplug configuration for [{name}] requires diskDevice of type 'disk' or 'lun' to be used."
        )
    if kind == "lun" and bus != "scsi":
        raise HotplugRefused(
            f"Hotplug configuration for LUN [{name}] requires bus to be 'scsi'. [{bus}] is not permitted."
        )
    if bus not in HOTPLUG_BUSES:
        raise HotplugRefused(
            f"Hotplug configuration for disk [{name}] requires bus to be 'scsi' or 'virtio'. [{bus}] is not permitted."
        )


def _follow_nics(template: Json, vmi: Json) -> Iterator[Json]:
    wanted, present = (by_name(spec, "domain", "devices", "interfaces") for spec in (template, vmi))
    for name, nic in present.items():
        state = wanted.get(name, nic).get("state")
        changed = state != nic.get("state") and nic.get("state") != ABSENT
        yield _with_state(nic, state) if changed else nic
    for name, nic in wanted.items():
        if name not in present and nic.get("state") != ABSENT and nic.get("bridge") is not None:
            yield nic


def _with_state(nic: Json, state: Any) -> Json:
    others = {key: value for key, value in nic.items() if key != "state"}
    return {**others, "state": state} if state else others


def _is_reported(nic: Mapping[str, Any], status: Json) -> bool:
    return any(each.get("name") == nic.get("name") for _, each in entries(status, "interfaces"))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(without_nulls(value), sort_keys=True).encode()).hexdigest()[:16]
