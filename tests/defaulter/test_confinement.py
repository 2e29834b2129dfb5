"""What a confined process can't do. Each case runs in a process of its own, because confinement is permanent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from defaulter import confinement
from defaulter.confinement import Confinement, FileView, Landlock, Missing, emulators, interpreters, worker_files
from tests.defaulter.conftest import Libvirt

SCRIPT = """
import ctypes, json, os, socket, subprocess, sys, time
from pathlib import Path
from defaulter import confinement
from defaulter.worker import drop_privileges
root = Path(sys.argv[1])

def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return type(error).__name__

def run(*command):
    return attempt(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True))

def run_from_memory():
    copy = os.memfd_create("copy", 0)
    os.write(copy, Path("/bin/true").read_bytes())
    return run(f"/proc/self/fd/{copy}") if copy < 0 else attempt(lambda: _fork_and_exec(copy))

def _fork_and_exec(copy):
    child = os.fork()
    if child == 0:
        try:
            os.execve(copy, ["copy"], {})
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))

found = {}
"""


def confined(root: Path, code: str) -> dict[str, Any]:
    command = [sys.executable, "-c", f"{SCRIPT}\n{code}\nprint(json.dumps(found))", str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.fixture
def offered(tmp_path: Path) -> list[str]:
    """What this kernel offers."""
    code = "found['enforced'] = confinement.confine(root, lambda: None).enforced"
    return list(confined(tmp_path, code)["enforced"])


@pytest.fixture
def qemu() -> Path:
    found = next(emulators(os.environ["PATH"]), None)
    if found is None:
        pytest.skip("no QEMU on this machine")
    return found


def test_only_qemu_may_be_executed_and_later_nothing(tmp_path: Path, qemu: Path, offered: list[str]) -> None:
    if not {"Landlock", "seccomp"} <= {*offered}:
        pytest.skip(f"this kernel offers only {', '.join(offered)}")
    code = f"""
confinement.confine(root, lambda: None)
found["shell"], found["qemu"] = run("/bin/sh", "-c", "true"), run("{qemu}", "--version")
confinement.forbid_programs()
found["later"], found["memory"] = run("{qemu}", "--version"), run_from_memory()
"""
    assert confined(tmp_path, code) == {
        "shell": "PermissionError",
        "qemu": "done",
        "later": "PermissionError",
        "memory": "PermissionError",
    }


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that another user can reach and owns."""
    made = Path(tempfile.mkdtemp(prefix="ph-"))
    if os.geteuid() == 0:
        os.chown(made, 65534, 65534)
    yield made
    shutil.rmtree(made)


def test_files_outside_are_refused(tmp_path: Path, root: Path, offered: list[str]) -> None:
    if "Landlock" not in offered:
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "secret").write_text("secret")
    code = f"""
confinement.confine(root, lambda: drop_privileges(65534, 65534))
found["read"] = attempt(lambda: open("{tmp_path}/secret").read())
found["write"] = attempt(lambda: open("{tmp_path}/new", "w"))
found["tmp"] = attempt(lambda: open("/tmp/poolhouse-confinement", "w"))
found["root"] = attempt(lambda: (root / "own").write_text("own"))
found["execute own"] = attempt(lambda: (root / "own").chmod(0o755)) + run(str(root / "own"))
found["secrets"] = attempt(lambda: open("/etc/shadow").read())
found["other process"] = attempt(lambda: open(f"/proc/{{os.getppid()}}/environ").read())
"""
    assert confined(root, code) == {
        "read": "PermissionError",
        "write": "PermissionError",
        "tmp": "PermissionError",
        "root": "done",
        "execute own": "donePermissionError",
        "secrets": "PermissionError",
        "other process": "PermissionError",
    }


def test_proc_may_be_closed_later(tmp_path: Path, root: Path, offered: list[str]) -> None:
    if "Landlock" not in offered:
        pytest.skip("this kernel has no Landlock")
    code = """
confinement.confine(root, lambda: drop_privileges(65534, 65534))
found["before"] = attempt(lambda: open("/proc/cpuinfo").read())
confinement.forbid_proc(root)
found["after"] = attempt(lambda: open("/proc/cpuinfo").read())
found["own"] = attempt(lambda: open("/proc/self/environ").read())
found["root"] = attempt(lambda: (root / "own").write_text("own"))
"""
    refused = "PermissionError"
    assert confined(root, code) == {"before": "done", "after": refused, "own": refused, "root": "done"}


def test_networks_and_debugging_are_refused(tmp_path: Path, offered: list[str]) -> None:
    if "seccomp" not in offered:
        pytest.skip("there is no libseccomp here")
    code = """
confinement.confine(root, lambda: None)
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return "done" if result >= 0 else os.strerror(ctypes.get_errno())
found["network"] = attempt(lambda: socket.socket(socket.AF_INET))
found["local"] = attempt(lambda: socket.socket(socket.AF_UNIX))
found["namespace"] = call("unshare", 0x10000000)
found["ptrace"] = call("ptrace", 0, 0, 0, 0)
"""
    assert confined(tmp_path, code) == {
        "network": "PermissionError",
        "local": "done",
        "namespace": "Operation not permitted",
        "ptrace": "Operation not permitted",
    }


def test_a_kernel_without_landlock_is_reported(tmp_path: Path, offered: list[str]) -> None:
    if "seccomp" not in offered:
        pytest.skip("there is no libseccomp here")
    code = """
import errno
confinement.no_new_privileges()
confinement.refuse_calls(["landlock_create_ruleset"], code=errno.ENOSYS)
result = confinement.confine(root, lambda: None)
found["missing"], found["enforced"] = result.missing, "seccomp" in result.enforced
"""
    found = confined(tmp_path, code)
    assert found == {"missing": {"Landlock": "Function not implemented"}, "enforced": True}


def test_a_missing_library_is_reported() -> None:
    def unavailable() -> None:
        raise Missing("libseccomp.so.2: cannot open shared object file")

    result = Confinement()
    result.apply("seccomp", unavailable)
    result.apply("no-new-privileges", lambda: None)
    assert result == Confinement(["no-new-privileges"], {"seccomp": "libseccomp.so.2: cannot open shared object file"})


def test_scripts_are_no_emulators(tmp_path: Path, qemu: Path) -> None:
    (tmp_path / "qemu-kvm").write_text("#!/bin/sh\nexec qemu-system-x86_64 -enable-kvm\n")
    (tmp_path / "qemu-kvm").chmod(0o755)
    (tmp_path / "qemu-system-x86_64").symlink_to(qemu)
    (tmp_path / "qemu-system-none").write_bytes(b"\x7fELF")
    assert [path for path in emulators(str(tmp_path)) if path.name != "qemu-kvm"] == [qemu]


def test_the_dynamic_loader_may_be_executed(qemu: Path) -> None:
    (loader,) = interpreters(qemu)
    assert loader.name.startswith("ld-")
    assert {qemu, loader} <= {*worker_files(Path("/w"), [qemu]).executable}


def test_a_worker_sees_no_directory_of_secrets(tmp_path: Path) -> None:
    readable = {str(path) for path in worker_files(tmp_path, []).readable}
    assert not {"/", "/etc", "/home", "/root", "/run", "/var", "/tmp"} & readable
    assert not any(str(path).startswith("/var/run/secrets") for path in readable)


def test_the_rules_need_no_existing_file(tmp_path: Path, offered: list[str]) -> None:
    if "Landlock" in offered:
        assert Landlock(FileView(readable=(tmp_path / "none",))).version >= 1


@pytest.mark.libvirt
def test_a_worker_is_confined(libvirt: Libvirt) -> None:
    status = Path(f"/proc/{libvirt.once.pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status


def test_every_refused_call_is_named_once() -> None:
    names = confinement.REFUSED_CALLS.split()
    assert names == sorted({*names})
