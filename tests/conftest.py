"""What tests of several rooms share: a real control plane, started once and ended with the last test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from local.places import Places
from local.services import SERVICES

POOLHOUSE = (sys.executable, "-P", "-m", "cli.main")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """A real etcd, kube-apiserver and kube-controller-manager on free ports, with our kinds and KubeVirt's installed
    and none of our services. Its supervisor starts again what a test kills."""
    places = Places.of(tmp_path_factory.mktemp("control-plane"))
    left_out = [word for name in SERVICES for word in ("--without", name)]
    poolhouse("up", "--detach", "--engine", "simulated", "--dir", str(places.dir), *left_out)
    try:
        yield places
    finally:
        poolhouse("down", "--dir", str(places.dir))


def poolhouse(*arguments: str) -> None:
    done = subprocess.run([*POOLHOUSE, *arguments], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
