"""`poolhouse up`, `status` and `down` with the simulated engine."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from click.testing import CliRunner

from controllers.defaulting.observe import CONFIGURATIONS
from controllers.pool.pools import POOLS
from defaulter.contract import DEFAULTED_FIELDS, undefaulted_fields
from defaulter.field_record import without
from poolhouse.cli.main import poolhouse as cli
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import CONFIG_MAPS, VMS
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.processes import find_processes
from poolhouse.stack.status_file import StackStatus
from tests.builders import manifest, vm_spec
from tests.conftest import stack
from tests.waiting import PATIENCE_SECONDS

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples/pool.yaml"
CONTROL_PLANE_ONLY = [
    option for name in ("webhook", "defaulter", "controllers", "engine") for option in ("--without", name)
]

START = """
import os, sys
if sys.argv[1]:
    os.open(sys.argv[1], os.O_RDWR)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""starts a program with the terminal, if there is one"""


def poolhouse(*arguments: str, expect: int = 0) -> str:
    """The standard output of a command in this process, which must exit with that code. A new process takes a
    second."""
    answer = CliRunner().invoke(cli, arguments)
    assert answer.exit_code == expect, answer.output
    return answer.output if expect else answer.stdout


def up(*arguments: str, expect: int = 0) -> str:
    """The same for `poolhouse up`, in a process of its own."""
    command = [sys.executable, "-P", "-m", "poolhouse.cli.main", "up", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert answer.returncode == expect, answer.stdout + answer.stderr
    return answer.stdout + (answer.stderr if expect else "")


def status(paths: StackPaths) -> dict[str, Any]:
    answer = CliRunner().invoke(cli, ["status", "--dir", str(paths.dir), "-o", "json"])
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


T = TypeVar("T")


def until(ask: Callable[[], T], true: Callable[[T], Any]) -> T:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


def call(paths: StackPaths, ask: Callable[[Api], Any]) -> Any:
    async def go() -> Any:
        async with await Api.connect(paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api:
            return await ask(api)

    return asyncio.run(go())


def note(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def kill_supervisor(paths: StackPaths) -> set[int]:
    """Returns the PIDs of the processes that are left."""
    os.kill(status(paths)["pid"], signal.SIGKILL)
    until(lambda: status(paths)["running"], lambda running: not running)
    return {found.pid for found in find_processes(paths.dir)}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StackPaths, StackPaths]]:
    """Two stacks that start at the same moment. The first test of this file ends the first one. The second one is
    `whole`, in a directory whose name has what URIs, shells and QEMU's options quote."""
    parent = tmp_path_factory.mktemp("stacks")
    one, paths = StackPaths(parent / ("x" * 120)), StackPaths(parent / "Jörg's stack, at 100%25")
    with ThreadPoolExecutor(1) as threads:
        without = ("--without", "engine", "--without", "controllers")
        answer = threads.submit(up, "--dir", str(one.dir), "--detach", "-o", "json", *without)
        with stack(paths, "--engine", "simulated", "--certificate-hours", "0.006", "--apply", str(EXAMPLE)):
            assert json.loads(answer.result())["phase"] == "ready"
            yield one, paths
    assert list(find_processes(paths.dir)) == []


@pytest.fixture(scope="module")
def whole(both: tuple[StackPaths, StackPaths]) -> StackPaths:
    """The whole stack with the example pool, and certificates that live for 22 seconds."""
    until(lambda: status(both[1]), lambda found: [pool["ready"] for pool in found["pools"] or ()] == [3])
    return both[1]


def test_a_stack_stops_and_resumes_beside_another_one(both: tuple[StackPaths, StackPaths]) -> None:
    """In a directory of 120 characters: started at the same moment as another one, detached, stopped by `down`, resumed
    without the webhook beside a process of an earlier run, killed, and stopped by `down` again."""
    one, two = both
    try:
        call(one, lambda api: api.create(CONFIG_MAPS, note("kept")))
        assert call(one, lambda api: api.list(CONFIGURATIONS))[0]
        kubeconfig, endpoints = one.kubeconfig.read_bytes(), json.loads(one.endpoints.read_text())
        assert set(endpoints) == {"apiserver", "webhook", "defaulter", "ca"}

        poolhouse("down", "--dir", str(one.dir))
        assert list(find_processes(one.dir)) == []
        poolhouse("status", "--dir", str(one.dir), expect=3)
        assert status(two)["phase"] == "ready"

        left = subprocess.Popen(["sleep", "infinity"], env={"POOLHOUSE_DIR": str(one.dir)})
        said = up("--dir", str(one.dir), "--detach", *CONTROL_PLANE_ONLY)
        assert said.rstrip().endswith(f"ready: export KUBECONFIG={one.kubeconfig}"), "the next command is the last line"
        assert left.wait(PATIENCE_SECONDS) == -signal.SIGTERM, "`up` ends what an earlier run has left"
        assert call(one, lambda api: api.get(CONFIG_MAPS, "default", "kept"))["metadata"]["name"] == "kept"
        assert one.kubeconfig.read_bytes() == kubeconfig
        assert json.loads(one.endpoints.read_text()) == {name: endpoints[name] for name in ("apiserver", "ca")}
        assert call(one, lambda api: api.list(CONFIGURATIONS))[0] == [], (
            "without the webhook, its configurations are removed"
        )

        assert len(kill_supervisor(one)) == 3, "parts outlive a supervisor that is killed"
        poolhouse("down", "--dir", str(one.dir))
        assert list(find_processes(one.dir)) == []
        assert status(two)["phase"] == "ready"
    finally:
        poolhouse("down", "--dir", str(one.dir))


def test_the_webhook_gives_each_vm_of_a_pool_its_hardware(whole: StackPaths) -> None:
    pool = yaml.safe_load(EXAMPLE.read_text().replace("alpine-dv", "alike"))
    pool["metadata"] = {"name": "alike", "namespace": "default"}
    pool["spec"]["replicas"] = 8
    pool["spec"]["template"]["spec"]["runStrategy"] = "Halted"
    before = reviews(whole)
    call(whole, lambda api: api.create(POOLS, pool))
    vms = until(lambda: named(whole, "alike-"), lambda found: len(found) == 8)
    assert reviews(whole) - before >= 8
    assert [undefaulted_fields(vm) for vm in vms] == [[]] * 8
    call(whole, lambda api: api.delete(POOLS, "default", "alike"))
    until(lambda: named(whole, "alike-"), lambda found: not found)
    for vm in vms:
        metadata = {key: vm["metadata"][key] for key in ("name", "namespace", "labels")}
        record = json.loads(vm["metadata"]["annotations"][DEFAULTED_FIELDS])
        template = vm["spec"]["template"]
        spec = {**vm["spec"], "template": {**template, "spec": without(template["spec"], record)}}
        given = manifest(VMS, spec=spec, **metadata)
        assert undefaulted_fields(given)
        answered = call(whole, partial(Api.create, resource=VMS, body=given, dry_run=True))
        assert answered["spec"] == vm["spec"]
        assert json.loads(answered["metadata"]["annotations"][DEFAULTED_FIELDS]) == record


def named(paths: StackPaths, prefix: str) -> list[dict[str, Any]]:
    machines, _ = call(paths, lambda api: api.list(VMS, "default"))
    return [machine for machine in machines if machine["metadata"]["name"].startswith(prefix)]


def reviews(paths: StackPaths) -> float:
    """How many new VMs, and changes of VMs, the webhook has been asked about."""
    found = json.loads(paths.endpoints.read_text())
    trust = ssl.create_default_context(cafile=found["ca"])
    with urllib.request.urlopen(f"{found['webhook']}/metrics", timeout=PATIENCE_SECONDS, context=trust) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if 'duration_seconds_count{entry="mutate",kind="VirtualMachine"' in line]
    return sum(float(line.split()[-1]) for line in counts)


def test_each_endpoint_is_verified_by_the_ca_file_and_served_by_its_component(whole: StackPaths) -> None:
    found = json.loads(whole.endpoints.read_text())
    assert set(found) == {"apiserver", "webhook", "defaulter", "controllers", "ca"}
    assert Path(found["ca"]).is_absolute()
    trust = ssl.create_default_context(cafile=found["ca"])
    for name in ("apiserver", "webhook", "defaulter", "controllers"):
        with urllib.request.urlopen(f"{found[name]}/readyz", timeout=PATIENCE_SECONDS, context=trust) as answer:
            assert answer.status == 200, name


def test_the_api_server_shows_its_certificate_to_the_webhook(whole: StackPaths) -> None:
    """Only the API server's review of this size gets an answer, with the path of the problem."""
    disks = [{"name": f"disk-{number}"} for number in range(20_000)]
    vm = manifest(VMS, "large", vm_spec({"domain": {"devices": {"disks": disks}}}, runStrategy="Halted"), "default")
    with pytest.raises(ApiError) as denied:
        call(whole, lambda api: api.create(VMS, vm))
    assert "spec.template.spec.domain.devices.disks: has 20000 entries; at most 256 are allowed" in str(denied.value)
    found = json.loads(whole.endpoints.read_text())
    request = {"uid": "u", "operation": "CREATE", "kind": {"group": "kubevirt.io", "version": "v1", "kind": vm["kind"]}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "object": vm}}
    forged = urllib.request.Request(
        f"{found['webhook']}/validate", json.dumps(review).encode(), {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(forged, timeout=PATIENCE_SECONDS, context=ssl.create_default_context(cafile=found["ca"]))
    assert refused.value.code == 413


def test_every_process_has_the_variable_of_its_stack_and_that_of_the_garbage_collector(whole: StackPaths) -> None:
    wanted = {f"POOLHOUSE_DIR={whole.dir}".encode(), f"GOGC={os.environ['GOGC']}".encode()}
    for part in status(whole)["parts"]:
        assert wanted <= set(Path(f"/proc/{part['pid']}/environ").read_bytes().split(b"\0")), part["name"]


def test_a_second_up_is_refused_with_a_message(whole: StackPaths) -> None:
    said = up("--dir", str(whole.dir), expect=1)
    assert f"a stack is already running in {whole.dir}" in said


def test_no_admission_fails_while_certificates_are_renewed(whole: StackPaths) -> None:
    """Over several certificates and a change of the CA, with ten requests a second."""
    first = (whole.tls_of("webhook") / "tls.crt").read_bytes()
    authorities = set((whole.tls / "authorities").glob("*.crt"))
    pool = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "spec": {}}
    end = time.monotonic() + PATIENCE_SECONDS

    def changed() -> bool:
        leaf = (whole.tls_of("webhook") / "tls.crt").read_bytes()
        return leaf != first and bool(set((whole.tls / "authorities").glob("*.crt")) - authorities)

    async def ask(api: Api) -> int:
        asked, left = 0, 100
        while left:
            assert time.monotonic() < end, "nothing was renewed"
            left -= changed()
            body = {**pool, "metadata": {"name": f"asked-{asked}", "namespace": "default"}}
            # Denied by the webhook for what it is: so it was asked, over a connection that was trusted.
            with pytest.raises(ApiError, match="denied the request"):
                await api.create(POOLS, body, dry_run=True)
            asked += 1
            await asyncio.sleep(0.1)
        return asked

    assert call(whole, ask) >= 100


@pytest.mark.parametrize("name", ["webhook", "defaulter", "kube-controller-manager", "kube-apiserver", "etcd"])
def test_a_killed_component_is_restarted(whole: StackPaths, name: str) -> None:
    """Tests of Pods kill the controllers, and those of the engine the engine."""

    def part() -> dict[str, Any]:
        found = StackStatus.read(whole.status)  # `status` would ask the API server for pools, too
        assert found is not None
        return next(part for part in found.parts if part["name"] == name)

    # The kill before this one may have ended others, which wait for their restart.
    before = until(part, lambda found: found["ready"] and found["pid"])
    os.kill(before["pid"], signal.SIGKILL)
    until(part, lambda found: found["ready"] and found["pid"] not in (None, before["pid"]))
    machines, _ = until(lambda: call(whole, _machines), lambda found: len(found[0]) == 3 and found[1])
    assert all(machine["status"]["ready"] for machine in machines)


async def _machines(api: Api) -> tuple[list[dict[str, Any]], bool]:
    try:
        machines, _ = await api.list(VMS, "default")
    except Exception:
        return [], False  # the API server is on its way
    return machines, all(machine.get("status", {}).get("ready") for machine in machines)


@pytest.mark.parametrize("closed", ["terminal", "pipe"])
def test_a_stack_stops_when_nobody_reads_its_output(tmp_path: Path, closed: str) -> None:
    """When its terminal is closed, and at the Ctrl-C that has ended the reader of `poolhouse up | tee log`."""
    paths = StackPaths(tmp_path / "stack")
    reader, writer = pty.openpty() if closed == "terminal" else os.pipe()
    command = ("poolhouse.cli.main", "up", "--dir", str(paths.dir), *CONTROL_PLANE_ONLY)
    process = subprocess.Popen(
        # A session's leader gets a terminal by opening it.
        [
            sys.executable,
            "-c",
            START,
            os.ttyname(writer) if closed == "terminal" else "",
            sys.executable,
            "-m",
            *command,
        ],
        stdout=writer,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb"},  # nobody reads a progress bar here
    )
    os.close(writer)
    try:
        until(lambda: status(paths), lambda found: found.get("phase") == "ready")
        os.close(reader)
        if closed == "pipe":
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, errors, list(find_processes(paths.dir))) == (0, b"", [])
    finally:
        process.kill()
        process.wait()
        poolhouse("down", "--dir", str(paths.dir))


def test_a_missing_prerequisite_is_reported_in_one_line(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path)}
    script = (
        "import poolhouse.stack.prerequisites as p; p.SBIN = ()\n"
        "from poolhouse.cli.main import main; main(['up', '--dir', 'x', '--without', 'defaulter'])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "QEMU is missing: apt-get install qemu-system-x86, or use --engine simulated" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_status_of_a_directory_without_a_stack(tmp_path: Path) -> None:
    assert "no stack is running" in poolhouse("status", "--dir", str(tmp_path), expect=3)
