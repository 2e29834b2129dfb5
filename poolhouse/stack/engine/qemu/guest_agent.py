"""Adds poolhouse-agent to the built-in Linux: a second initramfs with Python, its libraries and the agent.

Python and gRPC come from Debian's packages, which are unpacked without installing them, and kept in the user's cache.
The agent comes from the checkout of Poolhouse, or from an installed distribution. All modules are compiled before,
because a guest without KVM would need seconds for it in each boot.
"""

import gzip
import importlib.util
import logging
import os
import platform
import py_compile
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from poolhouse.api.kinds.warm_agent import AGENT_DISK
from poolhouse.service.user_cache import writing_cache
from poolhouse.stack.engine.qemu.guest_image import AGENT_START, CpioEntry, cpio, directory, program
from poolhouse.stack.engine.qemu.guest_packages import GuestImageUnavailable, download, run_command

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Release:
    """A release of Debian, whose packages the guest has. The guest has no package manager."""

    python: str
    libraries: tuple[str, ...]
    """packages of libraries whose names differ between releases"""

    @property
    def packages(self) -> tuple[str, ...]:
        python = (f"python{self.python}-minimal", f"libpython{self.python}-minimal", f"libpython{self.python}-stdlib")
        return (*python, "python3-grpcio", "python3-protobuf", *self.libraries, *LIBRARY_PACKAGES)

    @property
    def cache_tag(self) -> str:
        return f"cpython-{self.python.replace('.', '')}"


BOOKWORM = Release("3.11", ("libprotobuf32", "libabsl20220623", "libc-ares2", "libre2-9", "libssl3"))
TRIXIE = Release("3.13", ("libprotobuf32t64", "libabsl20240722", "libcares2", "libre2-11", "libssl3t64", "libzstd1"))
RELEASES = {"bookworm": BOOKWORM, "trixie": TRIXIE}
LIBRARY_PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6"),
    *("zlib1g", "libffi8", "libexpat1", "libbz2-1.0", "liblzma5", "libuuid1"),
)
LIBRARIES = "lib/x86_64-linux-gnu"
UNUSED = ("etc", "usr/share", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/python3.11/lib2to3")

CHECKOUT = Path(__file__).resolve().parents[4] / "agent" / "poolhouse_agent"
START = """#!/bin/sh
export PYTHONPATH=/opt HOME=/ PATH=/bin:/usr/bin PYTHONDONTWRITEBYTECODE=1
options=
for disk in /sys/block/vd*; do
  if [ -e $disk ] && [ "$(cat $disk/serial)" = __DISK__ ]; then
    mkdir -m 700 /run/tls
    tar -x -f /dev/${disk##*/} -C /run/tls
    options="--tls-dir /run/tls"
  fi
done
while :; do
  __PYTHON__ -m poolhouse_agent $options
  sleep 1
done
"""


def agent_archive(cache: Path) -> bytes:
    """The initramfs that follows that of the built-in Linux. Raises GuestImageUnavailable."""
    release = find_release(_codename())
    contents = sha256(repr((release.packages, UNUSED)).encode()).hexdigest()
    system = cache / f"agent-{contents[:16]}.cpio.gz"
    if not system.exists():
        with writing_cache(GuestImageUnavailable, cache):
            _write_system(system, release)
    return system.read_bytes() + gzip.compress(cpio(_agent(_source(), release)), mtime=0)


def find_release(codename: str) -> Release:
    """The release of Debian whose packages apt offers. Raises GuestImageUnavailable."""
    if codename not in RELEASES:
        raise GuestImageUnavailable(
            f"--guest-agent needs packages of Debian {' or '.join(RELEASES)}, but this is {codename or 'not Debian'}: "
            "start without it, or use --engine simulated, whose guests always have agents"
        )
    return RELEASES[codename]


def _codename() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def _write_system(system: Path, release: Release) -> None:
    """Writes the initramfs with Python and its libraries."""
    system.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="agent-", dir=system.parent) as scratch:
        work = Path(scratch)
        log.info("fetching the packages of the agent in guests: %s", ", ".join(release.packages))
        download(work, *release.packages)
        for package in work.glob("*.deb"):
            run_command(work, "dpkg-deb", "-x", str(package), "root")
        for name in ("lib", "lib64"):
            if not (work / "root" / name).exists():  # from Debian 13 on, packages have only their targets
                (work / "root" / name).symlink_to(f"usr/{name}")
        _compile(work, f"python{release.python}")
        draft = work / "draft"
        draft.write_bytes(gzip.compress(cpio(_files(work / "root")), compresslevel=6, mtime=0))
        draft.replace(system)


def _compile(work: Path, python: str) -> None:
    """Replaces the sources of Python's libraries by bytecode. The guest's Python makes it, because this process may run
    another version."""
    libraries = f"root/{LIBRARIES}:root/usr/{LIBRARIES}"
    command = (f"root/{LIBRARIES}/ld-linux-x86-64.so.2", "--library-path", libraries, f"root/usr/bin/{python}")
    options = ("-q", "-b", "--invalidation-mode", "unchecked-hash", "-s", "root", "-p", "/")
    run_command(work, *command, "-I", "-m", "compileall", *options, "root/usr/lib")
    for source in (work / "root/usr/lib").rglob("*.py"):
        if source.with_suffix(".pyc").exists():
            source.unlink()


def _files(root: Path) -> Iterator[CpioEntry]:
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(UNUSED):
            continue
        if path.is_symlink():
            yield CpioEntry(name, stat.S_IFLNK | 0o777, os.readlink(path).encode())
        elif path.is_dir():
            yield directory(name)
        else:
            yield CpioEntry(name, path.stat().st_mode, path.read_bytes())


def _agent(source: Path, release: Release) -> Iterator[CpioEntry]:
    yield from map(directory, ("opt", "opt/poolhouse_agent", "run", "var", "var/lib", str(Path(AGENT_START).parent)))
    for path in sorted(source.glob("*.py")):
        yield program(f"opt/poolhouse_agent/{path.name}", path.read_bytes())
    if sys.implementation.cache_tag == release.cache_tag:
        yield directory("opt/poolhouse_agent/__pycache__")
        yield from (_bytecode(path) for path in sorted(source.glob("*.py")))
    start = START.replace("__DISK__", AGENT_DISK).replace("__PYTHON__", f"python{release.python}")
    yield program(AGENT_START, start.encode())


def _bytecode(source: Path) -> CpioEntry:
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made"
        shown = f"/opt/poolhouse_agent/{source.name}"
        # Unchecked, because the times of the files in an initramfs are 0.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(made), shown, doraise=True, invalidation_mode=mode)
        return program(
            f"opt/poolhouse_agent/__pycache__/{source.stem}.{sys.implementation.cache_tag}.pyc", made.read_bytes()
        )


def _source() -> Path:
    if CHECKOUT.exists():
        if not (CHECKOUT / "protocol.py").exists():
            raise GuestImageUnavailable(f"{CHECKOUT} is not complete: `make setup` writes the missing modules")
        return CHECKOUT
    found = importlib.util.find_spec("poolhouse_agent")
    if found is None or found.origin is None:
        raise GuestImageUnavailable("guests with an agent need the distribution poolhouse-agent: install its wheel")
    return Path(found.origin).parent
