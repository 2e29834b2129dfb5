"""An initramfs as the kernel reads it: a cpio archive in the "newc" form."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class CpioEntry:
    path: str
    mode: int
    """type and permissions, as in stat"""
    content: bytes = b""
    device: tuple[int, int] = (0, 0)
    """major and minor, for device nodes"""


def directory(path: str) -> CpioEntry:
    return CpioEntry(path, stat.S_IFDIR | 0o755)


def program(path: str, content: bytes) -> CpioEntry:
    return CpioEntry(path, stat.S_IFREG | 0o755, content)


def character(path: str, major: int, minor: int) -> CpioEntry:
    return CpioEntry(path, stat.S_IFCHR | 0o600, device=(major, minor))


def cpio(entries: Iterable[CpioEntry]) -> bytes:
    """The archive; the same entries give the same bytes."""
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
