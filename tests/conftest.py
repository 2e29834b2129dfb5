"""Fixtures of several rooms: a real control plane, and stacks."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from controllers.shared.planner import _Interrupted
from poolhouse.stack.paths import StackPaths
from poolhouse.stack.services import SERVICES
from poolhouse.stack.status_file import StackStatus, tail
from tests.scheduling import in_order, servers_of, unit_of

if TYPE_CHECKING:
    from tests.portal.running import Place

START_SECONDS = 1500.0
"""With an empty cache the control plane is built first."""
STOP_SECONDS = 180.0
# How much new memory, in percent, Go programs of the tests (control planes, helm, kubectl) have before they collect
# garbage. They need less processor time with it.
os.environ.setdefault("GOGC", "400")
RUNS_GUESTS = shutil.which("qemu-system-x86_64") is not None and Path("/usr/sbin/libvirtd").exists()

EC2_FILES = (
    "cluster/test_pods_on_ec2.py",
    "cluster/test_warm_ec2.py",
    "controllers/warmpool/ec2/test_client.py",
    "controllers/warmpool/ec2/test_settings.py",
)
"""tests with the libraries of the extras ec2 and ec2-test, which `make test` runs in an environment of their own"""
collect_ignore = [] if find_spec("moto") else [*EC2_FILES]

# No deadline, because the machine may be busy. The examples are the same in each run, so that a failure comes from a
# change; --hypothesis-profile=default generates others.
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_sessionstart() -> None:
    """Lets the interrupts of plans be lost where nothing can be raised, such as in a callback of the garbage collector,
    of which Hypothesis has one. The planner repeats an interrupt, which would hit the report of pytest, too."""
    report = sys.unraisablehook

    def report_others(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is not _Interrupted:
            report(lost)

    sys.unraisablehook = report_others


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # would put units with many tests before units that take long
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without workers too, so that tests come in the order that is known to pass."""
    items[:] = in_order(items, lambda item: item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collection makes stays until the end: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


SERVERS_OF_UNIT = pytest.StashKey[ExitStack]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the servers that several files share with the last test of them: at rest they take processor time, too."""
    yield
    if nextitem is None or servers_of(nextitem.nodeid) != servers_of(item.nodeid):
        item.config.stash.setdefault(SERVERS_OF_UNIT, ExitStack()).close()


@pytest.fixture(scope="session")
def servers_of_unit(pytestconfig: pytest.Config) -> Iterator[ExitStack]:
    """Ends the servers that are entered into it after the last test of their unit (`tests/scheduling.py`)."""
    with pytestconfig.stash.setdefault(SERVERS_OF_UNIT, ExitStack()) as found:
        yield found


@contextmanager
def bare_control_plane(directory: Path) -> Iterator[StackPaths]:
    """A real etcd, API server and controller manager with all kinds of Poolhouse and none of its services.

    `kubeconfig` is that of cluster-admin.
    """
    paths = StackPaths(directory)
    with stack(paths, *(option for name in SERVICES for option in ("--without", name))):
        yield paths


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory, servers_of_unit: ExitStack) -> StackPaths:
    """A control plane for files of several packages, which stay with one worker. Each test uses a namespace of its own
    and deletes its cluster-wide objects."""
    return servers_of_unit.enter_context(bare_control_plane(tmp_path_factory.mktemp("control-plane")))


@pytest.fixture(scope="session")
def simulated_stack(tmp_path_factory: pytest.TempPathFactory, servers_of_unit: ExitStack) -> Place:
    """A stack with simulated VMs, and a provider at which its users sign in, for few files of several packages, which
    stay with one worker. The first of them is tests/console/test_browser.py, which leaves no object of Poolhouse."""
    from tests.portal.running import place  # imports this module

    return servers_of_unit.enter_context(place(tmp_path_factory.mktemp("simulated"), "simulated"))


@pytest.fixture(scope="session")
def guests_stack(tmp_path_factory: pytest.TempPathFactory, servers_of_unit: ExitStack) -> Place:
    """A stack with guests of QEMU whose hardware is recorded, and a provider at which its users sign in, for few files
    of several packages, which stay with one worker. The first of them are those of tests/cluster/guests, which leave no
    VM."""
    from tests.portal.running import place  # imports this module

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLHOUSE_HARDWARE_RECORD", "true")
        return servers_of_unit.enter_context(place(tmp_path_factory.mktemp("guests"), "qemu"))


class stack:
    """`with stack(paths, "--engine", "simulated"):` runs `poolhouse up` until the block ends, as a user whose files
    others cannot read."""

    def __init__(self, paths: StackPaths, *options: str) -> None:
        self._paths, self._options = paths, options

    def __enter__(self) -> subprocess.Popen[bytes]:
        paths = self._paths
        paths.logs.mkdir(parents=True, exist_ok=True)
        log = paths.log("supervisor")
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "poolhouse.cli.main", "up", "--dir", str(paths.dir), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                preexec_fn=_end_with_the_tests,  # noqa: PLW1509 (nothing else in it can take a lock)
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            report = StackStatus.read(paths.status)
            if report is not None and report.pid == self.process.pid and report.phase == "ready":
                return self.process
            time.sleep(0.1)
        self.__exit__()
        raise AssertionError(f"the stack did not start:\n{tail(log, lines=30)}")

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end_with_the_tests() -> None:
    """The kernel sends the supervisor a SIGTERM when the test process dies, so that no stack outlives a killed run."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
