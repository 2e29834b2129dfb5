"""Random libvirt-shaped VMs, each as the JSON of its spec and as the XML that the same author would give libvirt."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Json = dict[str, Any]
Device = tuple[str, Json, str]
"""the list of the device, its JSON, and its XML with a place for further elements"""


def vm(spec: Json, name: str = "testvm") -> Json:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VM", "metadata": {"name": name}, "spec": {"domain": spec}}


def generate(random: Random) -> tuple[Json, str]:
    """The spec and the XML of a VM."""
    machine = random.choice(("q35", "q35", "pc"))
    uuid = f"{random.getrandbits(32):08x}-0000-4000-8000-{random.getrandbits(48):012x}"
    memory, cpus = random.choice((64, 1024)), random.choice((1, 2, 4))
    devices = list(_devices(random, machine))
    random.shuffle(devices)
    spec: Json = {
        "uuid": uuid,
        "memory": {"unit": "MiB", "value": memory},
        "vcpu": {"value": cpus},
        "os": {"type": {"os": "hvm", "arch": "x86_64", "machine": machine}},
        "devices": {},
    }
    more, elements = _rest(random)
    body = ""
    for index, (key, plain, text) in enumerate(devices):
        device, inside = plain, ""
        if key not in ("graphics", "vsock", "memballoon") and random.random() < 0.3:
            device = {**device, "alias": {"name": f"ua-{index}"}}
            inside = f'<alias name="ua-{index}"/>'
        if key in ("vsock", "memballoon"):
            spec["devices"][key] = device
        else:
            spec["devices"].setdefault(key, []).append(device)
        body += text.format(inside)
    text = f"""<domain type="qemu"><name>testvm</name><uuid>{uuid}</uuid><memory unit="MiB">{memory}</memory>
        <vcpu>{cpus}</vcpu><os><type arch="x86_64" machine="{machine}">hvm</type></os>{elements}
        <devices>{body}</devices></domain>"""
    return {**spec, **more}, text


def _rest(random: Random) -> tuple[Json, str]:
    spec: Json = {}
    text = ""
    if random.random() < 0.5:
        spec["features"] = {"acpi": {}, "apic": {}, "hyperv": {"relaxed": {"state": "on"}, "spinlocks": _SPINLOCKS}}
        text += '<features><acpi/><apic/><hyperv><relaxed state="on"/>'
        text += '<spinlocks state="on" retries="8191"/></hyperv></features>'
    if random.random() < 0.5:
        timers = random.sample(("rtc", "pit", "hpet", "kvmclock"), 2)
        spec["clock"] = {"offset": "utc", "timers": [{"name": name, "present": "no"} for name in timers]}
        text += '<clock offset="utc">' + "".join(f'<timer name="{n}" present="no"/>' for n in timers) + "</clock>"
    if random.random() < 0.3:
        spec["cpu"] = {"mode": "custom", "match": "exact", "model": {"name": "Nehalem"}, "features": [_PCID]}
        text += '<cpu mode="custom" match="exact"><model>Nehalem</model><feature name="pcid" policy="disable"/></cpu>'
    return spec, text


_SPINLOCKS = {"state": "on", "retries": 8191}
_PCID = {"name": "pcid", "policy": "disable"}


def _devices(random: Random, machine: str) -> list[Device]:
    found: list[Device] = []
    numbers = {"vd": 0, "sd": 0}
    buses = ("virtio", "virtio", "sata", "scsi", "usb")
    for _ in range(random.choice((0, 1, 2, 4, 9))):
        bus = random.choice(buses)
        prefix = "vd" if bus == "virtio" else "sd"
        name = prefix + "abcdefghijklmnop"[numbers[prefix]]
        numbers[prefix] += 1
        kind = "cdrom" if bus in ("sata", "scsi") and random.random() < 0.3 else "disk"
        target = {"dev": name, "bus": bus}
        device = {"type": "file", "device": kind, "source": {"file": "/images/a"}, "target": target}
        text = f'<disk type="file" device="{kind}"><source file="/source"/>'
        found.append(("disks", device, text + f'<target dev="{name}" bus="{bus}"/>{{}}</disk>'))
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        model, mac = random.choice(("virtio", "e1000", "rtl8139", "e1000e")), f"52:54:00:{random.getrandbits(8):02x}"
        mac += f":{random.getrandbits(8):02x}:{len(found):02x}"
        device = {"type": "user", "mac": {"address": mac}, "model": {"type": model}}
        text = f'<interface type="user"><mac address="{mac}"/><model type="{model}"/>{{}}</interface>'
        found.append(("interfaces", device, text))
    for make in random.sample(OTHERS, random.randrange(len(OTHERS))):
        found += make(random)
    if all(key != "consoles" for key, _, _ in found) and random.random() < 0.5:
        found += CONSOLE(random)
    if not any(name in text for _, _, text in found for name in ('bus="usb"', 'type="usb"')) and random.random() < 0.8:
        found.append(
            ("controllers", {"type": "usb", "model": "none"}, '<controller type="usb" model="none">{}</controller>')
        )
    return found


def _plain(key: str, tag: str, *choices: tuple[Json, str], most: int = 1) -> Callable[[Random], list[Device]]:
    """One to `most` devices, each with the attributes of one of these choices, and the elements that belong to it."""

    def make(random: Random) -> list[Device]:
        found = []
        for _ in range(random.randint(1, most)):
            device, elements = random.choice(choices)
            attributes = "".join(f' {name}="{value}"' for name, value in device.items() if isinstance(value, str))
            found.append((key, device, f"<{tag}{attributes}>{elements}{{}}</{tag}>"))
        return found

    return make


_AGENT = {"type": "virtio", "name": "org.qemu.guest_agent.0"}
_TARGET_OF_AGENT = '<target type="virtio" name="org.qemu.guest_agent.0"/>'
_RANDOM = '<backend model="random">/dev/urandom</backend>'
_FUNCTION = '<source><address domain="0xffff" bus="0x01" slot="0x00" function="0x0"/></source>'
_SHARED: Json = {"type": "mount", "accessmode": "passthrough", "target": {"dir": "shared"}}

CONSOLE = _plain("consoles", "console", ({"type": "pty"}, ""))
OTHERS: tuple[Callable[[Random], list[Device]], ...] = (
    _plain("serials", "serial", ({"type": "pty"}, ""), most=3),
    _plain("serials", "serial", ({"type": "pty", "target": {"type": "pci-serial"}}, '<target type="pci-serial"/>')),
    _plain("consoles", "console", ({"type": "pty", "target": {"type": "virtio"}}, '<target type="virtio"/>'), most=2),
    _plain("channels", "channel", ({"type": "unix", "target": _AGENT}, _TARGET_OF_AGENT)),
    _plain("controllers", "controller", ({"type": "usb", "model": "qemu-xhci"}, "")),
    _plain("controllers", "controller", ({"type": "scsi", "model": "virtio-scsi"}, ""), most=2),
    _plain("controllers", "controller", ({"type": "virtio-serial"}, "")),
    _plain("hubs", "hub", ({"type": "usb"}, "")),
    _plain(
        "inputs",
        "input",
        ({"type": "mouse", "bus": "ps2"}, ""),
        ({"type": "tablet", "bus": "usb"}, ""),
        ({"type": "tablet", "bus": "virtio"}, ""),
        most=3,
    ),
    _plain("inputs", "input", ({"type": "tablet", "bus": "usb"}, ""), most=12),
    _plain("graphics", "graphics", ({"type": "vnc"}, "")),
    _plain("sounds", "sound", ({"model": "ich9"}, ""), ({"model": "ac97"}, ""), most=2),
    _plain("videos", "video", ({"model": {"type": "vga"}}, '<model type="vga"/>')),
    _plain("watchdogs", "watchdog", ({"model": "i6300esb"}, "")),
    _plain("rngs", "rng", ({"model": "virtio"}, _RANDOM), most=2),
    _plain("panics", "panic", ({"model": "isa"}, "")),
    _plain("tpms", "tpm", ({"model": "tpm-tis"}, '<backend type="passthrough"><device path="/tpm"/></backend>')),
    _plain("memballoon", "memballoon", ({"model": "none"}, ""), ({"model": "virtio"}, "")),
    _plain("vsock", "vsock", ({"model": "virtio"}, '<cid auto="yes"/>')),
    _plain("filesystems", "filesystem", (_SHARED, '<source dir="/source"/><target dir="shared"/>')),
    _plain("hostdevs", "hostdev", ({"mode": "subsystem", "type": "pci"}, _FUNCTION)),
)
