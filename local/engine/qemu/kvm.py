"""Whether KVM can be trusted here. The device may exist and guests hang with it all the same, so a guest is booted."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from pathlib import Path

from local.engine.qemu.guest_image import READY, GuestImage, command_line
from local.processes import as_user

log = logging.getLogger(__name__)

DEVICE = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROBE_SECONDS = 10.0


def kvm_works(guest: GuestImage, cache: Path, uid: int | None = None) -> bool:
    """Whether a tiny guest has really run with KVM as that user. What was found holds until the machine boots again."""
    if not DEVICE.exists() or not _may_open(uid):
        return False
    known = cache / f"kvm-{BOOT_ID.read_text().strip()}"
    with contextlib.suppress(OSError):
        return known.read_text() == "works"
    found = guest_boots(guest, "kvm", PROBE_SECONDS, uid)
    log.info("a guest %s with KVM", "runs" if found else "does not run")
    with contextlib.suppress(OSError):
        for old in cache.glob("kvm-*"):
            old.unlink()
        known.write_text("works" if found else "fails")
    return found


def guest_boots(guest: GuestImage, accelerator: str, seconds: float, uid: int | None = None) -> bool:
    """Whether the guest comes up within so many seconds."""
    command = [
        "qemu-system-x86_64",
        *("-machine", f"q35,accel={accelerator}", "-m", "128", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-serial", "stdio", "-kernel", str(guest.kernel), "-initrd", str(guest.initrd)),
        *("-append", command_line("probe", probe=True)),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, **as_user(uid)
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return READY.encode() in done.stdout


def _may_open(uid: int | None) -> bool:
    if uid is None or uid == os.geteuid():
        return os.access(DEVICE, os.R_OK | os.W_OK)
    status = DEVICE.stat()
    return status.st_mode & 0o006 == 0o006 or (status.st_uid == uid and status.st_mode & 0o600 == 0o600)
