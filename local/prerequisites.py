"""What a machine must have before a stack can run, each with what to install."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from local.components import StackError

MINIMUM_FREE_BYTES = 256 << 20
"""two of etcd's logs of 64 MiB, and what a small pool adds to them"""
SBIN = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""where distributions put libvirtd, which an ordinary user's PATH does not name"""


def check_programs(wanted: tuple[str, ...], engine: str) -> None:
    """Raises `Broken` with one line for each thing that is missing."""
    if missing := list(_missing(wanted, engine)):
        raise StackError("\n".join(missing))


def check_disk_space(directory: Path, free: int | None = None) -> None:
    """Raises `Broken` where a first start would end in etcd restarting for ever: it reserves its log in advance."""
    free = shutil.disk_usage(directory).free if free is None else free
    if not (directory / "etcd" / "member").exists() and free < MINIMUM_FREE_BYTES:
        raise StackError(
            f"{directory} has {free >> 20} MiB free, and a stack needs {MINIMUM_FREE_BYTES >> 20}: use another --dir"
        )


def search_path() -> str:
    here = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*here, *(entry for entry in SBIN if entry not in here)])


def _missing(wanted: tuple[str, ...], engine: str) -> Iterator[str]:
    if sys.platform != "linux":
        yield "the embedded stack needs Linux"
    qemu = "engine" in wanted and engine == "qemu"
    if qemu:
        instead = "or use --engine simulated"
        if not _found("qemu-system-x86_64"):
            yield f"QEMU is missing: apt-get install qemu-system-x86, {instead}"
        if not _found("qemu-img"):
            yield f"qemu-img is missing: apt-get install qemu-utils, {instead}"
        if not _found("libvirtd"):
            yield f"libvirtd is missing: apt-get install libvirt-daemon libvirt-daemon-driver-qemu, {instead}"
    if (qemu or "defaulter" in wanted) and not importlib.util.find_spec("libvirt"):
        yield (
            "Python's libvirt is missing: apt-get install libvirt-dev pkg-config gcc python3-dev, then "
            "pip install 'poolhouse[local]'"
        )
    if "defaulter" in wanted and not _found("qemu-system-x86_64") and not qemu:
        yield "QEMU is missing: apt-get install qemu-system-x86, or use --without defaulter"


def _found(program: str) -> bool:
    return shutil.which(program, path=search_path()) is not None
