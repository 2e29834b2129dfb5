"""Fetches the kernel and busybox of the built-in Linux from Debian's packages, and keeps them in the user's cache.

The packages are unpacked and not installed.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.engine.qemu.guest_image import MODULES, GuestImage, initrd, load_order

log = logging.getLogger(__name__)

KERNEL, BUSYBOX = "linux-image-cloud-amd64", "busybox-static"
COMMAND_SECONDS = 300.0


class GuestImageUnavailable(Exception):
    """The built-in Linux cannot be made here; the text says what is missing."""


@dataclass(frozen=True)
class Ingredients:
    kernel: bytes
    busybox: bytes
    modules: Mapping[str, bytes]


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poolhouse" / "guest"


def provide_guest_image(target: Path, cache: Path) -> GuestImage:
    """Writes kernel and initramfs into `target`, where QEMU's user can read them. Raises GuestImageUnavailable."""
    if not (cache / "complete").exists():
        _fill(cache)
    found = _read(cache)
    guest = GuestImage(target / "vmlinuz", target / "initrd")
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    for path, content in ((guest.kernel, found.kernel), (guest.initrd, initrd(found.busybox, found.modules))):
        if path.exists() and path.read_bytes() == content:
            continue  # A running QEMU reads the file again when its guest reboots.
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.chmod(0o644)
        fresh.replace(path)
    return guest


def _read(directory: Path) -> Ingredients:
    modules = {path.stem: path.read_bytes() for path in (directory / "modules").glob("*.ko")}
    return Ingredients((directory / "vmlinuz").read_bytes(), (directory / "busybox").read_bytes(), modules)


def _fill(cache: Path) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="guest-", dir=cache.parent) as scratch:
        work, made = Path(scratch) / "work", Path(scratch) / "made"
        work.mkdir()
        made.mkdir()
        _unpack(work)
        _gather(work / "root", made)
        (made / "complete").touch()
        shutil.rmtree(cache, ignore_errors=True)
        made.rename(cache)


def _unpack(work: Path) -> None:
    """Downloads the packages and extracts them into `work/root`."""
    log.info("fetching the packages of the built-in Linux: %s, %s", KERNEL, BUSYBOX)
    try:
        _run(work, "apt-get", "download", KERNEL, BUSYBOX)
    except GuestImageUnavailable:
        if os.geteuid() != 0:
            raise
        # A new machine has no package lists yet.
        _run(work, "apt-get", "update")
        _run(work, "apt-get", "download", KERNEL, BUSYBOX)
    meta = next(work.glob(f"{KERNEL}_*.deb"))
    depends = _run(work, "dpkg-deb", "-f", str(meta), "Depends")
    image = next((part.split()[0] for part in depends.split(",") if part.split()[0].startswith("linux-image-")), None)
    if image is None:
        raise GuestImageUnavailable(f"{KERNEL} depends on no kernel package: {depends.strip()!r}")
    _run(work, "apt-get", "download", image)
    for package in work.glob("*.deb"):
        _run(work, "dpkg-deb", "-x", str(package), "root")


def _gather(root: Path, made: Path) -> None:
    kernel = next(iter((root / "boot").glob("vmlinuz-*")), None)
    busybox = next((path for path in (root / "bin/busybox", root / "usr/bin/busybox") if path.exists()), None)
    if kernel is None or busybox is None:
        raise GuestImageUnavailable("the packages do not contain the expected kernel or busybox")
    shutil.copy(kernel, made / "vmlinuz")
    shutil.copy(busybox, made / "busybox")
    (made / "modules").mkdir()
    present = {path.stem.replace("-", "_"): path for path in root.rglob("*.ko")}
    for name in load_order({name: path.read_bytes() for name, path in _near(present).items()}, MODULES):
        shutil.copy(present[name], made / "modules" / f"{name}.ko")


def _near(present: Mapping[str, Path]) -> dict[str, Path]:
    """Modules that the wanted ones can depend on. To read thousands of modules would take seconds."""
    parts = ("virtio", "net/core", "drivers/net/", "drivers/block/virtio", "input/evdev", "acpi/button")
    return {name: path for name, path in present.items() if any(part in str(path) for part in parts)}


def _run(cwd: Path, *command: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except OSError as error:
        raise GuestImageUnavailable(f"{command[0]} cannot be run: {error}") from error
    except subprocess.TimeoutExpired:
        raise GuestImageUnavailable(f"{' '.join(command)} has not ended after {COMMAND_SECONDS:g} s") from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise GuestImageUnavailable(f"{' '.join(command)}: {last[0]}")
    return done.stdout


def main() -> int:
    """`make setup` fetches the packages, so that the first `poolhouse up` does not."""
    cache = cache_dir()
    try:
        if not (cache / "complete").exists():
            _fill(cache)
    except GuestImageUnavailable as missing:
        print(f"the built-in Linux cannot be fetched now: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
