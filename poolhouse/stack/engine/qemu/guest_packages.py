"""Fetches the kernel and busybox of the built-in Linux from Debian's packages, and keeps them in the user's cache.

The module unpacks the packages without installing them.
"""

import logging
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from poolhouse.service.user_cache import cache_dir, writing_cache
from poolhouse.stack.engine.qemu.guest_image import MODULES, GuestImage, initrd, load_order

log = logging.getLogger(__name__)

KERNEL, BUSYBOX = "linux-image-cloud-amd64", "busybox-static"
COMMAND_SECONDS = 300.0
MODULES_DIR = "modules"
MODULE_PATHS = ("virtio", "net/core", "drivers/net/", "drivers/block/virtio", "input/evdev", "acpi/button")
"""parts of the paths of modules that the guest may need; the filter avoids reading thousands of modules"""
UNPACK: Mapping[str, Callable[[bytes], bytes]] = {"": bytes, ".xz": lzma.decompress}
"""how a module is unpacked, by what follows `.ko` in the name of its file"""


class GuestImageUnavailable(Exception):
    """The built-in Linux cannot be built on this machine. The message names what is missing."""


def provide_guest_image(target: Path, cache: Path, more: bytes = b"") -> GuestImage:
    """Writes kernel and initramfs into `target`, where QEMU's user can read them. `more` is another initramfs, whose
    files are added. Raises GuestImageUnavailable."""
    fill_cache(cache)
    modules = {path.stem: path.read_bytes() for path in (cache / MODULES_DIR).glob("*.ko")}
    guest = GuestImage(target / "vmlinuz", target / "initrd")
    target.mkdir(parents=True, exist_ok=True)
    target.chmod(0o755)
    contents = {
        guest.kernel: (cache / "vmlinuz").read_bytes(),
        guest.initrd: initrd((cache / "busybox").read_bytes(), modules) + more,
    }
    for path, content in contents.items():
        if path.exists() and path.read_bytes() == content:
            continue  # The file must stay, because a running QEMU reads it again when its guest reboots.
        draft = path.with_suffix(".new")
        draft.write_bytes(content)
        draft.chmod(0o644)
        draft.replace(path)
    return guest


def fill_cache(cache: Path) -> None:
    """Fills the cache unless it is complete. Raises GuestImageUnavailable."""
    if _complete(cache):
        return
    with writing_cache(GuestImageUnavailable, cache.parent):
        _fill_cache(cache)


def _fill_cache(cache: Path) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="guest-", dir=cache.parent) as scratch:
        work, draft = Path(scratch) / "work", Path(scratch) / "draft"
        work.mkdir()
        (draft / MODULES_DIR).mkdir(parents=True)
        _unpack_packages(work)
        copy_files(work / "root", draft)
        (draft / "complete").touch()
        shutil.rmtree(cache, ignore_errors=True)
        try:
            draft.rename(cache)
        except OSError:  # another stack has filled it at the same time
            if not _complete(cache):
                raise


def _complete(cache: Path) -> bool:
    """Whether the cache has all files. Without modules it may come from a version that did not read compressed ones."""
    return (cache / "complete").exists() and any((cache / MODULES_DIR).glob("*.ko"))


def _unpack_packages(work: Path) -> None:
    """Downloads the packages and extracts them into `work/root`."""
    log.info("fetching the packages of the built-in Linux: %s, %s", KERNEL, BUSYBOX)
    download(work, KERNEL, BUSYBOX)
    meta = next(work.glob(f"{KERNEL}_*.deb"))
    depends = run_command(work, "dpkg-deb", "-f", str(meta), "Depends")
    image = next((part.split()[0] for part in depends.split(",") if part.split()[0].startswith("linux-image-")), None)
    if image is None:
        raise GuestImageUnavailable(f"{KERNEL} depends on no kernel package: {depends.strip()!r}")
    run_command(work, "apt-get", "download", image)
    for package in work.glob("*.deb"):
        run_command(work, "dpkg-deb", "-x", str(package), "root")


def download(directory: Path, *packages: str) -> None:
    command = ("apt-get", "download", *packages)
    try:
        try:
            run_command(directory, *command)
        except GuestImageUnavailable:
            if os.geteuid() != 0:
                raise
            # A new machine may have no package lists yet. A failed update is seen only by the next download.
            run_command(directory, "apt-get", "update")
            run_command(directory, *command)
    except GuestImageUnavailable as error:
        raise GuestImageUnavailable(
            f"{error}; make sure that `sudo apt-get update` works, or use --engine simulated"
        ) from error


def copy_files(root: Path, target: Path) -> None:
    """Copies kernel, busybox and modules out of unpacked packages. Raises GuestImageUnavailable."""
    kernel = next(iter((root / "boot").glob("vmlinuz-*")), None)
    busybox = next((path for path in (root / "bin/busybox", root / "usr/bin/busybox") if path.exists()), None)
    if kernel is None or busybox is None:
        raise GuestImageUnavailable("the packages do not contain the expected kernel or busybox")
    shutil.copy(kernel, target / "vmlinuz")
    shutil.copy(busybox, target / "busybox")
    modules = dict(_modules(root))
    listed = [line for path in root.rglob("modules.builtin") for line in path.read_text().splitlines()]
    built_in = {Path(line).stem.replace("-", "_") for line in listed}
    if missing := [name for name in MODULES if name not in modules and name not in built_in]:
        raise GuestImageUnavailable(f"the package of the kernel does not contain the modules {', '.join(missing)}")
    for name in load_order(modules):
        (target / MODULES_DIR / f"{name}.ko").write_bytes(modules[name])


def _modules(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the modules that the guest may need. From Debian 13 on, the kernel's package
    compresses them."""
    for path in root.rglob("*.ko*"):
        name, _, compression = path.name.partition(".ko")
        if compression in UNPACK and any(part in str(path) for part in MODULE_PATHS):
            yield name.replace("-", "_"), UNPACK[compression](path.read_bytes())


def run_command(cwd: Path, *command: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        # The last line of dpkg-deb says only that tar failed.
        last = error.stderr.strip().splitlines()[-2:] or ["no reason given"]
        shown = " ".join(command[:3]) + (" ..." if len(command) > 3 else "")
        raise GuestImageUnavailable(f"{shown}: {'; '.join(last)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GuestImageUnavailable(str(error)) from error
    return done.stdout


def main() -> int:
    """Fetches the packages during `make setup`, so that the first `poolhouse up` does not wait for them."""
    try:
        fill_cache(cache_dir() / "guest")
    except GuestImageUnavailable as error:
        print(f"the built-in Linux cannot be fetched now: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
