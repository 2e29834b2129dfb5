"""The console in a real Chromium, with the real API server and a simulated stack that all tests share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local.paths import StackPaths
from tests.conftest import stack
from tests.console.browser import CHROMIUM, DRIVER, Browser, chromium, running_console

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Debian's chromium and chromium-driver are missing")
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    paths = StackPaths(tmp_path_factory.mktemp("console"))
    with stack(paths, "--engine", "simulated"):
        yield paths.kubeconfig


@pytest.fixture(scope="module")
def browser(kubeconfig: Path) -> Iterator[Browser]:
    with running_console(kubeconfig) as (root, _), chromium() as driver:
        yield Browser(driver, root)


def kubectl(kubeconfig: Path, *arguments: str, document: object = None) -> str:
    text = yaml.safe_dump(document) if document is not None else None
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def test_a_pool_appears_and_is_scaled(kubeconfig: Path, browser: Browser) -> None:
    browser.open("/")
    browser.reads("There is no object of Poolhouse here yet")
    kubectl(kubeconfig, "apply", "-f", str(ROOT / "examples" / "pool.yaml"))
    browser.reads("vmpool/my-vm-pool", "Healthy")  # without a reload
    browser.click("a", "my-vm-pool")
    command = browser.act("Scale", replicas="4")
    assert command == "kubectl scale virtualmachinepool.kubevirt.io/my-vm-pool --replicas=4 -n default"
    browser.reads("my-vm-pool is scaled to 4", "my-vm-pool-4")
    assert kubectl(kubeconfig, "get", "vmpool", "my-vm-pool", "-o", "jsonpath={.spec.replicas}") == "4"
    browser.act("Scale", replicas="3")
    browser.reads("my-vm-pool deletes 1 VM.")
    browser.click("button.danger", "Scale")
    browser.reads("my-vm-pool is scaled to 3")
    assert browser.errors() == []
