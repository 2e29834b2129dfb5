"""Checks that the machine can run a stack. Each error names the package to install."""

import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from poolhouse.stack.components import StackError
from poolhouse.stack.paths import StackPaths

MINIMUM_FREE_BYTES = 256 << 20
"""space for two write-ahead logs of etcd, 64 MiB each, and the data of a small pool"""
FULL_BYTES = 128 << 20
"""free space below which a full disk may be why a process has ended: etcd allocates 64 MiB before it needs them, and
frees them when it ends"""
MINIMUM_PROCESSES = 256
"""processes and threads: a stack without VMs has 60 on two cores, more on others, and its user has others"""
SBIN = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""directories of libvirtd, which are not in the PATH of an ordinary user"""


def check_programs(wanted: tuple[str, ...], engine: str) -> None:
    """Raises `StackError` with one line for each missing prerequisite."""
    if missing := list(_missing(wanted, engine)):
        raise StackError("\n".join(missing))


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def check_disk_space(directory: Path, free: int | None = None) -> None:
    """Raises `StackError` if the disk has too little space for a first start, when etcd preallocates its log."""
    free = free_bytes(directory) if free is None else free
    if not (directory / "etcd" / "member").exists() and free < MINIMUM_FREE_BYTES:
        raise StackError(
            f"{directory} has {free >> 20} MiB free, and a stack needs {MINIMUM_FREE_BYTES >> 20}: use another --dir"
        )


def describe_full_disk(paths: StackPaths, free: Callable[[Path], int] = free_bytes) -> str:
    """Returns a sentence about a directory of the stack whose disk is nearly full, or nothing."""
    with suppress(OSError):  # of a stack that has never started
        for directory in (paths.dir, paths.shared):
            if (left := free(directory)) < FULL_BYTES:
                return f"the disk of {directory} has only {left >> 20} MiB free: delete files there"
    return ""


def check_processes(limit: int | None = None) -> None:
    """Raises `StackError` if this user may have too few processes and threads: services would be aborted without a
    reason in their logs. The limit does not hold for root."""
    limit = _process_limit() if limit is None else limit
    if limit < MINIMUM_PROCESSES:
        raise StackError(
            f"`ulimit -u` is {limit}, and a stack needs {MINIMUM_PROCESSES} processes and threads: raise it"
        )


def _process_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return MINIMUM_PROCESSES if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else soft


def search_path() -> str:
    here = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*here, *(entry for entry in SBIN if entry not in here)])


def _missing(wanted: tuple[str, ...], engine: str) -> Iterator[str]:
    if sys.platform != "linux":
        yield "the embedded stack needs Linux"
    qemu = "engine" in wanted and engine == "qemu"
    if qemu:
        alternative = "or use --engine simulated"
        if not _found("qemu-system-x86_64"):
            yield f"QEMU is missing: apt-get install qemu-system-x86, {alternative}"
        if not _found("qemu-img"):
            yield f"qemu-img is missing: apt-get install qemu-utils, {alternative}"
        if not _found("libvirtd"):
            yield f"libvirtd is missing: apt-get install libvirt-daemon libvirt-daemon-driver-qemu, {alternative}"
    if (qemu or "defaulter" in wanted) and not importlib.util.find_spec("libvirt"):
        yield (
            "The Python package libvirt is missing: apt-get install libvirt-dev pkg-config gcc python3-dev, then "
            "pip install '.[local]' in a checkout of Poolhouse"
        )
    if "defaulter" in wanted and not _found("qemu-system-x86_64") and not qemu:
        yield "QEMU is missing: apt-get install qemu-system-x86, or use --without defaulter"


def _found(program: str) -> bool:
    return shutil.which(program, path=search_path()) is not None
