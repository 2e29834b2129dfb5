from __future__ import annotations

import gzip

from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.qemu.guest_image import command_line, cpio, initrd, load_order, program


def module(*needs: str) -> bytes:
    return b"\x7fELF...\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0name=x\0"


def test_modules_follow_their_dependencies() -> None:
    modules = {
        "virtio_net": module("net_failover", "virtio"),
        "net_failover": module("failover"),
        "failover": module(),
        "virtio": module("virtio-ring"),
        "virtio_ring": module(),
    }
    order = load_order(modules, ("virtio_net", "built_in"))
    assert order == ("failover", "net_failover", "virtio_ring", "virtio", "virtio_net")


def test_the_initrd_is_reproducible_and_contains_init() -> None:
    made = initrd(b"busybox", {"evdev": module()})
    assert made == initrd(b"busybox", {"evdev": module()})
    archive = gzip.decompress(made)
    assert b"for module in evdev; do" in archive
    assert b"TRAILER!!!" in archive


def test_cpio_records_are_aligned() -> None:
    archive = cpio([program("a", b"12345"), program("bcd", b"")])
    starts = [at for at in range(len(archive)) if archive.startswith(b"070701", at)]
    assert len(starts) == 3
    assert not any(at % 4 for at in starts)


def test_dirty_memory_is_rounded_up_to_whole_blocks() -> None:
    assert "poolhouse.dirty=32" in command_line("vm", Faults(dirty_memory=30 << 20))
    assert "dirty" not in command_line("vm")


def test_a_guest_is_told_when_to_reboot_and_to_stop_its_service() -> None:
    words = command_line("vm", Faults(reboot_seconds=9, service_seconds=5)).split()
    assert {"poolhouse.reboot=9", "poolhouse.service=5"} <= set(words)


def test_the_initrd_has_no_placeholders() -> None:
    assert b"__" not in gzip.decompress(initrd(b"", {}))


def test_a_kernel_panic_ends_the_guest() -> None:
    assert "panic=-1" in command_line("vm")
    assert "poolhouse.probe" not in command_line("vm")
