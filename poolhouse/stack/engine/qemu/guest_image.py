"""Builds the built-in Linux: a kernel and an initramfs, which boot in two seconds without KVM, with 128 MiB of memory.

VMs boot the built-in Linux if their image is unreachable. The guest prints its name, firmware identity, PCI devices and
MAC addresses on the serial console. Then the guest counts seconds, so that a test can measure the downtime of a live
migration, and prints PCI devices that are plugged or unplugged. With the option `dirty`, the guest overwrites memory
again and again, so that a live migration takes longer. A web server answers on port 80, for probes; with the option
`service`, it stops after some seconds. With the option `reboot`, the guest reboots after some seconds.
"""

import gzip
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from poolhouse.stack.engine.fault_injection import NO_FAULTS, Faults

READY_LINE = "poolhouse guest is up"
"""console line of a guest that has booted"""

AGENT_START = "agent/start"
"""program that the guest starts, if another initramfs has it"""

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "evdev", "button")
"""kernel modules for the devices of a domain and for the power button; a module may be built into the kernel"""

DIRTY_BLOCK_MIB = 4
"""MiB that the guest overwrites per step; without KVM, about 150 MiB per second while it writes"""
DIRTY_PAUSE_MICROSECONDS = 200_000
"""Time between two passes over the memory. In a round of a live migration the guest overwrites all of it all the same,
and most of a core is left to other processes."""

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
if [ -e /sys/class/net/eth0 ]; then
  ifconfig lo 127.0.0.1
  ifconfig eth0 10.0.2.15 netmask 255.255.255.0
  route add default gw 10.0.2.2
  echo "$(hostname)" > /www/index.html
  httpd -f -p 80 -h /www &
  service=$(sed -n 's/.*poolhouse\.service=\([0-9]*\).*/\1/p' /proc/cmdline)
  if [ -n "$service" ]; then
    ( sleep $service; killall httpd; echo "the web server has stopped" ) &
  fi
fi
[ -x /__AGENT__ ] && /__AGENT__ &
echo "__READY__"
reboot=$(sed -n 's/.*poolhouse\.reboot=\([0-9]*\).*/\1/p' /proc/cmdline)
if [ -n "$reboot" ]; then
  ( sleep $reboot; echo "rebooting"; reboot -f ) &
fi
if grep -q poolhouse.probe /proc/cmdline; then poweroff -f; fi
dirty=$(sed -n 's/.*poolhouse\.dirty=\([0-9]*\).*/\1/p' /proc/cmdline)
if [ -n "$dirty" ]; then
  mount -t tmpfs tmpfs /tmp
  # Not zeros: a migration does not copy zero pages.
  dd if=/dev/urandom of=/tmp/block bs=1M count=__BLOCK__ 2>/dev/null
  echo "dirtying $dirty MiB of memory without end"
  blocks=
  for block in $(seq $((dirty / __BLOCK__))); do blocks="$blocks /tmp/block"; done
  while :; do
    cat $blocks 1<> /tmp/memory
    usleep __PAUSE__
  done &
fi
second=0
known=$(ls /sys/bus/pci/devices)
while :; do
  echo "second $second"
  sleep 1
  second=$((second + 1))
  present=$(ls /sys/bus/pci/devices)
  if [ "$present" != "$known" ]; then
    for address in $present; do
      device=/sys/bus/pci/devices/$address
      echo "$known" | grep -qF "$address" || echo "plugged: $address $(cat $device/vendor):$(cat $device/device)"
    done
    for address in $known; do
      echo "$present" | grep -qF "$address" || echo "unplugged: $address"
    done
    known=$present
  fi
done
"""


@dataclass(frozen=True)
class GuestImage:
    kernel: Path
    initrd: Path


def command_line(name: str, faults: Faults = NO_FAULTS, *, probe: bool = False) -> str:
    """Returns the kernel command line. With `probe`, the guest powers off after the boot. Its `dirty_memory` is rounded
    up to whole blocks.

    panic=-1: QEMU ends after a panic. no_timer_check: without this option, the kernel on a busy machine finds the
    emulated timer broken and panics. init_on_free=1: freed memory is zero, so that a live migration does not copy it.
    mitigations=off and cryptomgr.notests: without KVM, mitigations and self-tests are a fifth of the boot; an emulated
    CPU does not speculate.
    """
    words = ["console=ttyS0", "quiet", "panic=-1", "no_timer_check", "nowatchdog", "init_on_free=1"]
    words += ["mitigations=off", "cryptomgr.notests"]
    words.append(f"poolhouse.name={name}")
    if probe:
        words.append("poolhouse.probe")
    if faults.dirty_memory:
        words.append(f"poolhouse.dirty={-(-faults.dirty_memory // (DIRTY_BLOCK_MIB << 20)) * DIRTY_BLOCK_MIB}")
    for word, seconds in (("service", faults.service_seconds), ("reboot", faults.reboot_seconds)):
        if seconds is not None:
            words.append(f"poolhouse.{word}={int(seconds)}")
    return " ".join(words)


def load_order(modules: Mapping[str, bytes], wanted: Sequence[str] = MODULES) -> tuple[str, ...]:
    """Returns the modules and their dependencies (`depends=` in a module) in load order."""
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
    """Returns the initramfs with a static busybox and the kernel's modules, which are given by name."""
    order = load_order(modules)
    script = INIT.replace("__MODULES__", " ".join(order)).replace("__READY__", READY_LINE)
    script = script.replace("__AGENT__", AGENT_START)
    script = script.replace("__BLOCK__", str(DIRTY_BLOCK_MIB)).replace("__PAUSE__", str(DIRTY_PAUSE_MICROSECONDS))
    entries = [
        *map(directory, ("bin", "dev", "proc", "sys", "modules", "tmp", "www")),
        # The initramfs needs this device, because the kernel opens the console for /init before any mount.
        character("dev/console", 5, 1),
        program("init", script.encode()),
        program("bin/busybox", busybox),
        *(program(f"modules/{name}.ko", modules[name]) for name in order),
    ]
    return gzip.compress(cpio(entries), compresslevel=6, mtime=0)


@dataclass(frozen=True)
class CpioEntry:
    path: str
    mode: int
    """file type and permissions, as in `stat`"""
    content: bytes = b""
    device: tuple[int, int] = (0, 0)
    """major and minor number of a device node"""


def directory(path: str) -> CpioEntry:
    return CpioEntry(path, stat.S_IFDIR | 0o755)


def program(path: str, content: bytes) -> CpioEntry:
    return CpioEntry(path, stat.S_IFREG | 0o755, content)


def character(path: str, major: int, minor: int) -> CpioEntry:
    return CpioEntry(path, stat.S_IFCHR | 0o600, device=(major, minor))


def cpio(entries: Iterable[CpioEntry]) -> bytes:
    """Returns a reproducible archive in the "newc" format."""
    listed = [*entries, CpioEntry("TRAILER!!!", 0)]
    return b"".join(_record(number, entry) for number, entry in enumerate(listed, 1))


def _record(number: int, entry: CpioEntry) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = [number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(head + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
