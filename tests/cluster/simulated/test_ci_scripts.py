"""The scripts of the end-to-end workflow that need an API server: disks of guests, and the state after a failure."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from poolhouse.stack.paths import StackPaths
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / ".github" / "scripts"
PATH = f"{os.environ['PATH']}:{ROOT / '.venv' / 'bin'}"
DOCKER = r"""#!/usr/bin/env bash
case $1 in
create) echo 0123 ;;
cp) mkdir -p "$3" && for each in $DISKS; do head -c 1048576 /dev/zero >"$3/$each"; done ;;
esac
"""


def run(script: str, *arguments: str, kubeconfig: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / script), *arguments],
        cwd=ROOT,
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": PATH, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, env=os.environ | {"PATH": PATH}, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    path = tmp_path / "docker"
    path.write_text(DOCKER)
    path.chmod(0o755)
    return path


@pytest.fixture
def guests(tmp_path: Path, simulated: StackPaths) -> Iterator[Path]:
    """A directory for the script. After the test, its web server is ended, and what was imported is deleted."""
    yield tmp_path / "guests"
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "guests" / "server.pid").read_text()), signal.SIGTERM)
    kubectl(simulated.kubeconfig, "delete", "namespace", "golden", "--ignore-not-found", "--wait=false")


def test_the_disk_of_a_container_disk_is_imported(simulated: StackPaths, docker: Path, guests: Path) -> None:
    env = {"DOCKER": str(docker), "DISKS": "disk.img", "PORT": str(free_port()), "WAIT": "3m"}
    done = run("provide-guests.sh", "guest:1", "127.0.0.1", str(guests), kubeconfig=simulated.kubeconfig, **env)
    assert done.returncode == 0, done.stdout
    assert (
        "GET /guest.img" in (guests / "server.log").read_text()
        or "HEAD /guest.img" in (guests / "server.log").read_text()
    )
    phase = kubectl(
        simulated.kubeconfig, "get", "datavolume", "guest", "-n", "golden", "-o", "jsonpath={.status.phase}"
    )
    assert phase == "Succeeded"
    assert kubectl(simulated.kubeconfig, "get", "datasource", "guest", "-n", "golden", "-o", "name")


@pytest.mark.parametrize("disks", ["", "one.img two.img"], ids=["no disk", "two disks"])
def test_a_container_disk_has_one_disk(simulated: StackPaths, docker: Path, guests: Path, disks: str) -> None:
    env = {"DOCKER": str(docker), "DISKS": disks, "PORT": str(free_port())}
    done = run("provide-guests.sh", "guest:1", "127.0.0.1", str(guests), kubeconfig=simulated.kubeconfig, **env)
    assert done.returncode != 0
    assert "expected one file in /disk" in done.stdout


def test_the_state_of_a_cluster_is_collected(simulated: StackPaths, tmp_path: Path) -> None:
    done = run(
        "diagnostics.sh", str(tmp_path / "state"), kubeconfig=simulated.kubeconfig, POOLHOUSE=poolhouse(tmp_path)
    )
    assert done.returncode == 0, done.stdout
    found = {path.name: path.read_text() for path in (tmp_path / "state").glob("*.*") if path.suffix != ".gz"}
    assert "node-1" in found["nodes.txt"]
    assert "virtualmachinepools.kubevirt.io" in found["crds.txt"]
    assert "kind: KubeVirt" in found["kubevirts.kubevirt.io.yaml"]
    assert "exit code" in found["cdis.cdi.kubevirt.io.yaml"], "the stack has no CDI, and the script goes on"
    assert (tmp_path / "state" / "poolhouse.tar.gz").stat().st_size > 0
    assert not [name for name, text in found.items() if "kind: Secret\n" in text]


def poolhouse(tmp_path: Path) -> str:
    """The command of this work tree; `.venv` may belong to another."""
    path = tmp_path / "poolhouse"
    path.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec .venv/bin/python -m poolhouse.cli.main "$@"\n')
    path.chmod(0o755)
    return str(path)
