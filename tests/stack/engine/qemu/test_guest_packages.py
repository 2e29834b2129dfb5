from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from poolhouse.stack.engine.qemu.guest_image import MODULES
from poolhouse.stack.engine.qemu.guest_packages import (
    GuestImageUnavailable,
    copy_files,
    download,
    fill_cache,
    run_command,
)

KERNEL_DIR = "usr/lib/modules/6.12/kernel/drivers/virtio"


def packages(root: Path, files: dict[str, bytes], built_in: str = "") -> Path:
    for name, content in {"boot/vmlinuz-6.12": b"kernel", "usr/bin/busybox": b"busybox", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "usr/lib/modules/6.12").mkdir(parents=True, exist_ok=True)
    (root / "usr/lib/modules/6.12/modules.builtin").write_text(built_in)
    return root


def target(directory: Path) -> Path:
    (directory / "modules").mkdir(parents=True)
    return directory


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        pytest.param(".ko", bytes, id="Debian 12 does not compress modules"),
        pytest.param(".ko.xz", lzma.compress, id="Debian 13 compresses modules"),
    ],
)
def test_the_guest_gets_its_modules_unpacked(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    files = {f"{KERNEL_DIR}/{name}{ending}": pack(name.encode()) for name in MODULES}
    copy_files(packages(tmp_path / "root", files), target(tmp_path / "cache"))
    found = {path.name: path.read_bytes() for path in (tmp_path / "cache" / "modules").iterdir()}
    assert found == {f"{name}.ko": name.encode() for name in MODULES}


def test_a_kernel_whose_modules_cannot_be_read_is_refused(tmp_path: Path) -> None:
    files = {f"{KERNEL_DIR}/{name}.ko.unknown": b"" for name in MODULES[1:]}
    root = packages(tmp_path / "root", files, built_in=f"kernel/drivers/{MODULES[0].replace('_', '-')}.ko\n")
    with pytest.raises(GuestImageUnavailable, match="modules " + ", ".join(MODULES[1:])):
        copy_files(root, target(tmp_path / "cache"))


def test_a_cache_without_modules_is_filled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target(tmp_path / "cache") / "complete").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GuestImageUnavailable, match="apt-get"):
        fill_cache(tmp_path / "cache")


def test_a_machine_without_package_lists_is_told_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text('#!/bin/sh\n[ "$1" = update ] || { echo "E: Unable to locate package b" >&2; exit 100; }\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GuestImageUnavailable) as error:
        download(tmp_path, "a", "b")
    assert str(error.value) == (
        "apt-get download a ...: E: Unable to locate package b; "
        "make sure that `sudo apt-get update` works, or use --engine simulated"
    )


def test_the_reason_of_a_failed_command_is_not_only_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(GuestImageUnavailable, match="tar: No space left on device; dpkg-deb: error"):
        run_command(
            tmp_path, "sh", "-c", "echo 'tar: No space left on device\ndpkg-deb: error: tar failed' >&2; exit 2"
        )
