"""Tests with QEMU whether KVM and post-copy migration work on this machine."""

import contextlib
import json
import logging
import os
import subprocess
from pathlib import Path

from poolhouse.stack.engine.qemu.guest_image import READY_LINE, GuestImage, command_line
from poolhouse.stack.processes import as_user

log = logging.getLogger(__name__)

KVM_DEVICE = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KVM_BOOT_SECONDS = 10.0
QMP_SECONDS = 10.0
QMP_COMMANDS = (
    {"execute": "qmp_capabilities"},
    {
        "execute": "migrate-set-capabilities",
        "arguments": {"capabilities": [{"capability": "postcopy-ram", "state": True}]},
        "id": "asked",
    },
    {"execute": "quit"},
)
# QEMU uses the kernel's userfaultfd only while it waits for an incoming migration.
QEMU = (
    *("qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none"),
    *("-incoming", "defer", "-qmp", "stdio"),
)
REMEDY = "as root, 'sysctl -w vm.unprivileged_userfaultfd=1' on this machine allows it"


def kvm_works(guest: GuestImage, cache: Path, uid: int | None = None) -> bool:
    """Whether a guest boots with KVM under the user. The test boots a guest, because guests may hang although /dev/kvm
    exists. The result is cached until the machine reboots."""
    if not KVM_DEVICE.exists() or not _may_open_kvm(uid):
        return False
    known = cache / f"kvm-{BOOT_ID.read_text().strip()}"
    with contextlib.suppress(OSError):
        return known.read_text() == "works"
    works = guest_boots(guest, "kvm", KVM_BOOT_SECONDS, uid)
    log.info("a guest %s with KVM", "boots" if works else "does not boot")
    with contextlib.suppress(OSError):
        for old in cache.glob("kvm-*"):
            old.unlink()
        known.write_text("works" if works else "fails")
    return works


def guest_boots(guest: GuestImage, accelerator: str, seconds: float, uid: int | None) -> bool:
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
    return READY_LINE.encode() in done.stdout


def _may_open_kvm(uid: int | None) -> bool:
    if uid is None or uid == os.geteuid():
        return os.access(KVM_DEVICE, os.R_OK | os.W_OK)
    status = KVM_DEVICE.stat()
    return status.st_mode & 0o006 == 0o006 or (status.st_uid == uid and status.st_mode & 0o600 == 0o600)


def why_no_post_copy(uid: int | None) -> str | None:
    """Returns why VMs of the user cannot migrate by post-copy now; None if they can. The result depends on the kernel,
    a sysctl that may change, QEMU's version and the user."""
    try:
        done = subprocess.run(
            QEMU,
            input="".join(map(json.dumps, QMP_COMMANDS)),
            capture_output=True,
            text=True,
            timeout=QMP_SECONDS,
            check=False,
            **as_user(uid),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"post-copy is not possible here: QEMU cannot be asked for it: {error}"
    return parse_answer(done.stdout, done.stderr)


def parse_answer(answers: str, errors: str) -> str | None:
    """Returns why QEMU refuses post-copy, or None. `answers` contains a JSON document per line."""
    for line in answers.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if answer.get("id") != "asked":
            continue
        if "error" not in answer:
            return None
        why = (errors.strip().splitlines() or [answer["error"].get("desc", "no")])[-1].strip()
        remedy = f"; {REMEDY}" if "not permitted" in why else ""
        return f"post-copy is not possible here: QEMU says {why!r}{remedy}"
    return "post-copy is not possible here: QEMU ended without an answer"
