"""Starts and stops a cluster of real nodes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from poolhouse.stack import prerequisites
from poolhouse.stack.binaries import find_programs
from poolhouse.stack.components import ComponentState, SetupStep, StackError
from poolhouse.stack.lock import hold
from poolhouse.stack.paths import DIR_VARIABLE
from poolhouse.stack.processes import clean_up, stop_stack
from poolhouse.stack.status_file import StackStatus, StatusFile, tail
from poolhouse.stack.supervisor import Supervisor
from tests.node import addons, images, programs
from tests.node.components import components
from tests.node.configuration import write_configuration
from tests.node.layout import LAN, Layout, create_layout, load_layout

START_SECONDS = 1500.0
"""With empty caches the programs are built first."""
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_SECONDS = 20.0
ROOT = Path(__file__).resolve().parent.parent.parent


def up(state: Path, nodes: int) -> Layout:
    """Starts a cluster that keeps running, and returns when it is ready. Raises `StackError`."""
    layout = create_layout(state, nodes)
    layout.paths.logs.mkdir(parents=True, exist_ok=True)
    log = layout.paths.log("supervisor")
    command = [sys.executable, "-u", "-m", "tests.node.main", "run", "--state", str(layout.paths.dir)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--nodes", str(nodes)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        report = StackStatus.read(layout.paths.status)
        if report is not None and report.pid == process.pid and report.phase == "ready":
            return layout
        time.sleep(0.1)
    down(state)
    raise StackError(f"the cluster did not start:\n{tail(log, lines=30)}")


def down(state: Path) -> None:
    """Ends every process of the cluster. Its directory stays, with etcd's data and the nodes' images."""
    layout = load_layout(state)
    stop_stack(layout.paths)
    _clean_up(layout)


def delete(state: Path) -> None:
    """Ends the cluster and removes its directory."""
    down(state)
    shutil.rmtree(load_layout(state).paths.dir)


def run(state: Path, nodes: int) -> None:
    """Runs the cluster until SIGTERM. Raises `StackError`."""
    layout = create_layout(state, nodes)
    paths = layout.paths
    paths.lock.touch(mode=0o600)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with hold(paths.lock):
        _clean_up(layout)
        status = StatusFile(paths.status, "none", ())
        try:
            built = programs.find_programs(_say)
            paths.prepare(None)
            write_configuration(layout)
            system_images = images.write_system_images(paths.dir, built)
            stack = _supervisor(layout, built, system_images, status)
            asyncio.run(_supervise(stack, status))
        except StackError as error:
            status.set_phase("broken", str(error))
            raise
        finally:
            _clean_up(layout)
        status.set_phase("ended")


def _supervisor(layout: Layout, built: Path, system_images: list[Path], status: StatusFile) -> Supervisor:
    async def load_images() -> None:
        for archive in system_images:
            await asyncio.to_thread(images.load, layout, archive)

    names = [node.name for node in layout.nodes]
    return Supervisor(
        list(components(layout, find_programs(_say), built)),
        [
            SetupStep("images", load_images, after=tuple(f"containerd-{name}" for name in names)),
            SetupStep("addons", lambda: addons.install(layout), after=("images", *(f"kube-proxy-{n}" for n in names))),
        ],
        env={**os.environ, "PATH": prerequisites.search_path(), DIR_VARIABLE: str(layout.paths.dir)},
        cwd=layout.paths.dir,
        log=layout.paths.log,
        changed=lambda state: _report(status, state),
    )


async def _supervise(supervisor: Supervisor, status: StatusFile) -> None:
    """Runs the supervisor until SIGINT or SIGTERM."""
    running = asyncio.create_task(supervisor.run())
    ready = asyncio.create_task(supervisor.ready())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            status.set_phase("ready")
        await asyncio.wait({running})
    finally:
        ready.cancel()
    if not running.cancelled():
        running.result()


def _report(status: StatusFile, state: ComponentState) -> None:
    status.set_component(state)
    if state.ready:
        _say(f"{state.name} is ready")
    elif state.exit_code is not None and state.pid is None:
        _say(f"{state.name} ended with exit code {state.exit_code}")


def _clean_up(layout: Layout) -> None:
    """Ends what a killed supervisor left behind, and removes cgroups. Links, rules and mounts end with their
    namespaces, and these with their processes."""
    clean_up(layout.paths)
    layout.pid_file(LAN).unlink(missing_ok=True)
    for node in layout.nodes:
        layout.pid_file(node.name).unlink(missing_ok=True)
        layout.is_up(node.name).unlink(missing_ok=True)
        for hierarchy in CGROUPS.iterdir():
            if (cgroup := hierarchy / layout.cgroup(node.name)).is_dir():
                _remove_cgroup(cgroup)


def _remove_cgroup(cgroup: Path) -> None:
    """Removes a cgroup and those inside of it. Waits for processes that are ending."""
    deadline = time.monotonic() + CGROUP_SECONDS
    for directory, _, _ in os.walk(cgroup, topdown=False):
        while True:
            try:
                os.rmdir(directory)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise StackError(f"{directory} cannot be removed: {error.strerror}") from error
                time.sleep(0.05)


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)
