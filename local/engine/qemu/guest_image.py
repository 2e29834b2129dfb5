"""The built-in tiny Linux: a kernel and one program, up in two seconds without KVM and in 128 MiB.

It stands in for an image that cannot be reached, and shows on its serial console what it was given: its name, its
identity, its PCI devices and MAC addresses. Then it counts seconds. A live migration is one that loses no second.

It can be told to write over a piece of its memory again and again, which is the load that live migration finds hard.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.engine.archive import character, cpio, directory, program

READY = "poolhouse guest is up"
"""The line that says that it runs; what probes of the console wait for."""

WANTED = ("virtio_pci", "virtio_blk", "virtio_net", "evdev", "button")
"""Modules for what libvirt puts into a VM, and for its power button; built-in ones have no file."""

STROKE = 4
"""MiB that it writes at a time, where it is told to write over its memory: 150 MiB a second or so without KVM"""

INIT = r"""#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin
export PATH=/bin
for module in __MODULES__; do
  insmod /modules/$module.ko
done
name=$(sed -n 's/.*poolhouse\.name=\([^ ]*\).*/\1/p' /proc/cmdline)
hostname "${name:-guest}"

button=$(sed -n '/Power Button/,/^$/s/^H: Handlers=.*\(event[0-9]*\).*/\1/p' /proc/bus/input/devices | head -n 1)
if [ -n "$button" ]; then
  ( head -c 24 /dev/input/$button > /dev/null; echo "power button: halting"; poweroff -f ) &
fi

echo
echo "poolhouse: $(hostname), Linux $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s"
dmi=/sys/class/dmi/id
echo "uuid: $(cat $dmi/product_uuid 2>/dev/null)  serial: $(cat $dmi/product_serial 2>/dev/null)"
echo "cpus: $(grep -c ^processor /proc/cpuinfo)  memory: $(sed -n 's/MemTotal: *//p' /proc/meminfo)"
for device in /sys/bus/pci/devices/*; do
  driver=$(readlink $device/driver)
  read vendor < $device/vendor; read id < $device/device; read class < $device/class
  echo "pci: ${device##*/} ${vendor#0x}:${id#0x} class ${class#0x} ${driver##*/}"
done
for interface in /sys/class/net/*; do
  [ -e $interface/device ] && echo "nic: ${interface##*/} $(cat $interface/address)"
done
for disk in /sys/block/vd* /sys/block/sd*; do
  [ -e $disk/size ] && echo "disk: ${disk##*/} $(cat $disk/size) sectors serial $(cat $disk/serial 2>/dev/null)"
done
echo "__READY__"
if grep -q poolhouse.probe /proc/cmdline; then poweroff -f; fi
dirty=$(sed -n 's/.*poolhouse\.dirty=\([0-9]*\).*/\1/p' /proc/cmdline)
if [ -n "$dirty" ]; then
  mount -t tmpfs tmpfs /tmp
  # Not zeros: a page of those is moved by its name alone.
  dd if=/dev/urandom of=/tmp/ink bs=1M count=__STROKE__ 2>/dev/null
  echo "writing over $dirty MiB of memory without end"
  strokes=
  for stroke in $(seq $((dirty / __STROKE__))); do strokes="$strokes /tmp/ink"; done
  while :; do
    cat $strokes 1<> /tmp/paper
  done &
fi
second=0
while :; do
  echo "second $second"
  sleep 1
  second=$((second + 1))
done
"""


@dataclass(frozen=True)
class GuestImage:
    """The files that QEMU boots it from."""

    kernel: Path
    initrd: Path


def command_line(name: str, *, probe: bool = False, dirty: int = 0) -> str:
    """What the kernel is told. A panic ends the guest rather than leaving it to stand there as if it ran; a probe ends
    as soon as it is up. `dirty` is how many bytes it writes over and over, rounded up to what it writes at a time.

    On a busy machine an emulated timer misses the moment in which the kernel tests it, and the kernel panics: it is
    told to trust it. What it frees it fills with zeros, which a live migration need not copy.
    """
    words = ["console=ttyS0", "quiet", "panic=-1", "no_timer_check", "nowatchdog", "init_on_free=1"]
    words.append(f"poolhouse.name={name}")
    if probe:
        words.append("poolhouse.probe")
    if dirty:
        words.append(f"poolhouse.dirty={-(-dirty // (STROKE << 20)) * STROKE}")
    return " ".join(words)


def load_order(modules: Mapping[str, bytes], wanted: Sequence[str] = WANTED) -> tuple[str, ...]:
    """The wanted modules and what they need, each after what it needs. Modules say so themselves, in `depends=`."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in modules:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", modules[name])
        for needed in found[1].decode().split(",") if found else ():
            visit(needed.replace("-", "_"))
        order.append(name)

    for name in wanted:
        visit(name)
    return tuple(order)


def initrd(busybox: bytes, modules: Mapping[str, bytes]) -> bytes:
    """Its whole file system, from a static busybox and the kernel's modules by name."""
    order = load_order(modules)
    script = INIT.replace("__MODULES__", " ".join(order)).replace("__READY__", READY)
    script = script.replace("__STROKE__", str(STROKE))
    entries = [
        *map(directory, ("bin", "dev", "proc", "sys", "modules", "tmp")),
        # The kernel opens it for /init before anything is mounted.
        character("dev/console", 5, 1),
        program("init", script.encode()),
        program("bin/busybox", busybox),
        *(program(f"modules/{name}.ko", modules[name]) for name in order),
    ]
    return gzip.compress(cpio(entries), compresslevel=6, mtime=0)
