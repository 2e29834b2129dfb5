"""The hardware of running guests: libvirt's domain XML as a flat table of facts, which can be compared."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree

from poolhouse.runtime.resource import VMIS
from poolhouse.stack.engine.qemu.domain_xml import QEMU
from poolhouse.stack.engine.qemu.libvirtd import find_socket

if TYPE_CHECKING:
    from tests.e2e.scope import Scope

Json = dict[str, Any]
Facts = dict[str, str]
SECONDS = 60.0
_SOCKETS = "/run/libvirt/virtqemud-sock /run/libvirt/libvirt-sock"


async def read_domain(scope: Scope, name: str) -> Facts:
    """The facts of the domain of a running VMI."""
    vmi = await scope.api.get(VMIS, scope.namespace, name)
    domain = f"{scope.namespace}_{name}"
    if scope.target.embedded is not None:
        socket = find_socket(scope.target.embedded.node_runtime(vmi["status"]["nodeName"]))
        return facts(await asyncio.to_thread(_embedded_xml, socket, vmi["metadata"]["uid"]))
    pod = await scope.launcher(vmi)
    virsh = f'virsh -c "qemu+unix:///session?socket=$(ls {_SOCKETS} 2>/dev/null | head -n 1)" dumpxml {domain}'
    command = [*scope.kubectl, "exec", pod, "-c", "compute", "--", "sh", "-c", virsh]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return facts(done.stdout)


def _embedded_xml(socket: Path, uid: str) -> str:
    import libvirt

    connection = libvirt.open(f"qemu+unix:///session?socket={socket}")
    try:
        return str(connection.lookupByUUIDString(uid).XMLDesc())
    finally:
        connection.close()


def facts(xml: str) -> Facts:
    """What a guest sees of its domain, by device and property. Devices have the aliases that KubeVirt gives them."""
    root = etree.fromstring(xml.encode())
    found: dict[str, str | None] = {name: root.findtext(name) for name in ("uuid", "memory", "vcpu")}
    machine, topology = root.find("os/type"), root.find("cpu/topology")
    found["machine"] = machine.get("machine") if machine is not None else None
    for shown in root.iterfind(f"{{{QEMU}}}commandline/{{{QEMU}}}arg"):
        # The embedded engine finds a domain by the VMI's UID; QEMU's options have the guest's own.
        if str(shown.get("value")).startswith("type=1,"):
            found |= {"uuid": None, "smbios": shown.get("value")}
    found["loader"] = root.findtext("os/loader")
    found["topology"] = _attributes(topology)
    for entry in root.iterfind("sysinfo/*/entry"):
        found[f"sysinfo {entry.get('name')}"] = entry.text
    for device in root.iterfind("devices/*"):
        alias = device.find("alias")
        key = f"{device.tag} {alias.get('name') if alias is not None else device.get('type') or ''}"
        found[f"{key} address"] = _attributes(device.find("address"))
        found[f"{key} mac"] = _attributes(device.find("mac"))
        found[f"{key} target"] = _attributes(device.find("target")) if device.tag == "disk" else None
        found[f"{key} serial"] = device.findtext("serial") if device.tag == "disk" else None
        model = device.find("model")
        found[f"{key} model"] = device.get("model") or (model.get("type") if model is not None else None)
    return {name: value for name, value in found.items() if value is not None}


def differences(before: Facts, after: Facts) -> dict[str, tuple[str | None, str | None]]:
    """The facts that differ, with both values."""
    return {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def _attributes(element: Any) -> str | None:
    return None if element is None else " ".join(f"{name}={value}" for name, value in sorted(element.attrib.items()))
