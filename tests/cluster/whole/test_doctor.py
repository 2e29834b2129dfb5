"""An outage of one of Poolhouse's services, as users see it on a whole stack."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poolhouse.cli.main import poolhouse
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import Resource
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.status_file import StackStatus
from tests.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pool.yaml"
STALE_SECONDS = 60.0
"""within which an outage of the controllers must be found"""
PAUSE_SECONDS = 1.0
"""between two calls of `doctor`, which sends a dozen requests"""
SERVICES = ("webhook", "defaulter", "controllers")


def start(kubeconfig: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "poolhouse.cli.main", *words, "--kubeconfig", str(kubeconfig)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(kubeconfig: Path, *words: str) -> tuple[int, str]:
    process = start(kubeconfig, *words)
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def doctor(kubeconfig: Path) -> tuple[int, dict[str, str]]:
    process = start(kubeconfig, "doctor", "-o", "json")
    out, _ = process.communicate(timeout=120)
    return process.returncode, verdicts(out)


def asked(kubeconfig: Path) -> tuple[int, dict[str, str]]:
    """The answer of `doctor` in this process, for tests that ask again: a new process takes a second of a core."""
    answer = CliRunner().invoke(poolhouse, ["doctor", "-o", "json", "--kubeconfig", str(kubeconfig)])
    return answer.exit_code, verdicts(answer.stdout)


def verdicts(out: str) -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in json.loads(out)}


@contextmanager
def stopped(paths: StackPaths, service: str) -> Iterator[None]:
    """The service does not answer, and its supervisor sees a process that lives."""
    status = StackStatus.read(paths.status)
    assert status is not None
    (pid,) = [part["pid"] for part in status.parts if part["name"] == service]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: asked(paths.kubeconfig)[0] == 0, least_pause=PAUSE_SECONDS)


def test_a_stack_that_works_passes_all_checks(whole: StackPaths) -> None:
    def works() -> bool:
        code, checks = asked(whole.kubeconfig)
        return (code, set(checks.values())) == (0, {"ok"})

    wait_until(
        works, least_pause=PAUSE_SECONDS
    )  # on a busy machine a Lease may have expired for a moment, which is a warning
    healthy = (0, "no object is degraded in namespace default\n")
    wait_until(lambda: run(whole.kubeconfig, "overview", "--wrong") == healthy)


def outage_in(paths: StackPaths, service: str, exit_code: int, *words: str) -> str:
    """The output of a command that names the outage. Such commands wait five seconds for the services: on a busy
    machine the answer that shows the outage may come later."""

    def named() -> str:
        code, said = run(paths.kubeconfig, *words)
        found = f"Poolhouse itself has an outage: {service}: " in said
        assert code == exit_code or not found, said
        return said if found else ""

    return str(wait_until(named))


@pytest.mark.parametrize("service", SERVICES)
def test_an_outage_of_a_service_is_found_within_a_minute(whole: StackPaths, service: str) -> None:
    def is_found() -> bool:
        code, checks = asked(whole.kubeconfig)
        return (code, checks[service]) == (1, "failed")

    with stopped(whole, service):
        wait_until(is_found, STALE_SECONDS, PAUSE_SECONDS)
        assert "no object is degraded" not in outage_in(whole, service, 1, "overview", "--wrong")
        outage_in(whole, service, 0, "why", "my-vm-pool-1")


def test_commands_say_that_the_webhook_is_down_and_not_the_connection(whole: StackPaths, tmp_path: Path) -> None:
    changed = yaml.safe_load(EXAMPLE.read_text())
    changed["spec"]["template"]["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "192Mi"
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(yaml.safe_dump(changed))
    commands = (
        ("plan", "-f", str(manifest)),
        ("rollout", "pause", "my-vm-pool"),
        ("rollout", "restart", "my-vm-pool"),
    )
    with stopped(whole, "webhook"):
        for process in [start(whole.kubeconfig, *words) for words in commands]:
            _, said = process.communicate(timeout=120)
            assert (process.returncode, said.count("Poolhouse's webhook is down, so nothing was changed")) == (1, 1)
            assert ("failed calling webhook" in said, 'the page "Emergency" of' in said) == (True, True)
            assert "kubectl version" not in said


def test_a_user_who_may_only_read_sees_the_controllers_and_no_failure(whole: StackPaths, tmp_path: Path) -> None:
    token = asyncio.run(_token_of_viewer(whole.kubeconfig))
    config = yaml.safe_load(whole.kubeconfig.read_text())
    for each in config["users"]:
        each["user"] = {"token": token}
    viewer = tmp_path / "viewer"
    viewer.write_text(yaml.safe_dump(config))
    wait_until(lambda: asked(viewer)[1]["controllers"] == "ok")
    code, checks = doctor(viewer)
    assert (code, checks["webhook"], checks["defaulter"]) == (0, "unknown", "unknown")
    code, said = run(viewer, "overview", "--wrong")
    assert (code, "is not known: webhook, defaulter;" in said) == (0, True)


async def _token_of_viewer(kubeconfig: Path) -> str:
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    bindings = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
    metadata = {"name": "doctor-viewer", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"metadata": metadata, "roleRef": role, "subjects": [{"kind": "ServiceAccount", **metadata}]}
    async with await Api.connect(kubeconfig, user_agent="tests") as api:
        await api.create(accounts, {"metadata": metadata})
        await api.create(bindings, binding)
        answer = await api.request("POST", accounts.path("default", "doctor-viewer", "token"), body={})
    return str(answer["status"]["token"])


def test_an_api_server_that_does_not_answer_is_another_exit_code(whole: StackPaths, tmp_path: Path) -> None:
    config = yaml.safe_load(whole.kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"]["server"] = "https://127.0.0.1:1"
    away = tmp_path / "away"
    away.write_text(yaml.safe_dump(config))
    code, said = run(away, "doctor")
    assert (code, "no answer from the cluster" in said) == (3, True)
