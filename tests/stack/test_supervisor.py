"""The supervisor with real, short-lived `sh` processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from poolhouse.stack.components import Component, FileProbe, SetupStep, StackError
from poolhouse.stack.supervisor import Supervisor, start_order
from tests.waiting import PATIENCE_SECONDS, eventually


def shell(name: str, script: str, *after: str, **more: object) -> Component:
    return Component(name, ("sh", "-c", script), after=after, **more)


def supervisor(directory: Path, *components: Component, steps: tuple[SetupStep, ...] = ()) -> Supervisor:
    return Supervisor(
        components,
        steps,
        env={"PATH": os.environ["PATH"], "PLACE": str(directory)},
        cwd=directory,
        log=lambda name: directory / f"{name}.log",
    )


@asynccontextmanager
async def running(supervised: Supervisor) -> AsyncIterator[Supervisor]:
    task = asyncio.create_task(supervised.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await supervised.ready()
            yield supervised
    finally:
        task.cancel()
        await asyncio.wait({task})


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param({"a": (), "b": ("a",), "c": ("a",)}, [["a"], ["b", "c"]], id="siblings start together"),
        pytest.param({"b": ("a",), "a": ()}, [["a"], ["b"]], id="the order of declaration does not matter"),
        pytest.param({"b": ("left-out",)}, [["b"]], id="what was left out is not waited for"),
    ],
)
def test_components_start_after_their_dependencies(
    after: dict[str, tuple[str, ...]], expected: list[list[str]]
) -> None:
    assert start_order(after) == expected


def test_circular_dependencies_are_named() -> None:
    with pytest.raises(ValueError, match=r"\['a', 'b'\]"):
        start_order({"a": ("b",), "b": ("a",)})


async def test_a_component_starts_after_its_dependencies_and_stops_before_them(tmp_path: Path) -> None:
    note = f"echo $0 >> {tmp_path}/order"
    script = "trap '{0}; exit 0' TERM; {0}; touch ready-$0; while :; do sleep 0.05; done"
    components = [
        Component(
            name, ("sh", "-c", script.format(note), name), after=after, ready=FileProbe(tmp_path / f"ready-{name}")
        )
        for name, after in (("top", ("middle",)), ("middle", ("base",)), ("base", ()))
    ]
    async with running(supervisor(tmp_path, *components)):
        pass
    assert (tmp_path / "order").read_text().split() == ["base", "middle", "top", "top", "middle", "base"]


async def test_a_setup_step_runs_between_components(tmp_path: Path) -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.extend(sorted(name for name in os.listdir(tmp_path) if name.endswith(".made")))

    first = shell("first", "touch first.made; sleep 60", ready=FileProbe(tmp_path / "first.made"))
    second = shell("second", "touch second.made; sleep 60", "step", ready=FileProbe(tmp_path / "second.made"))
    async with running(supervisor(tmp_path, first, second, steps=(SetupStep("step", look, after=("first",)),))):
        assert seen == ["first.made"]


async def test_a_component_that_dies_is_restarted(tmp_path: Path) -> None:
    async with running(supervisor(tmp_path, shell("component", "exec sleep 60"))) as supervised:
        pid = supervised.states["component"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: supervised.states["component"].pid not in (None, pid))
        assert supervised.states["component"].restarts == 1
        assert supervised.states["component"].exit_code == -signal.SIGKILL
        assert supervised.states["component"].end == "ended with signal 9"
    assert supervised.states["component"].exit_code is None, "that it ended with the stack is no news of its own"


async def test_a_component_that_never_becomes_ready_breaks_the_stack_and_shows_its_log(tmp_path: Path) -> None:
    component = shell(
        "component", "echo the disk is full; exit 7", ready=FileProbe(tmp_path / "never"), restart_seconds=0.01
    )
    with pytest.raises(StackError, match=r"(?s)component ended with exit code 7 3 times.*the disk is full"):
        await supervisor(tmp_path, component).run()


async def test_a_component_that_hangs_at_its_first_start_breaks_the_stack(tmp_path: Path) -> None:
    component = shell("component", "exec sleep 60", ready=FileProbe(tmp_path / "never"), ready_seconds=0.2)
    with pytest.raises(StackError, match=r"component was not ready after 0\.2 s"):
        await supervisor(tmp_path, component).run()


async def test_a_component_that_hangs_at_a_later_start_is_stopped_and_said_to_be(tmp_path: Path) -> None:
    component = shell("component", "exec sleep 60", ready=FileProbe(tmp_path / "never"), ready_seconds=0.05)
    supervised = supervisor(tmp_path, component)
    supervised._reached["component"].set()  # by an earlier start
    async with running(supervised):
        await eventually(lambda: supervised.states["component"].restarts > 0)
        assert supervised.states["component"].end == "was not ready after 0.05 s, was stopped"


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="component cannot be started: /no/such/program: No such file"):
        await supervisor(tmp_path, Component("component", ("/no/such/program",))).run()


async def test_a_failed_setup_step_stops_all_components(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise StackError("refused")

    supervised = supervisor(
        tmp_path, shell("component", "exec sleep 60"), steps=(SetupStep("step", refuse, after=("component",)),)
    )
    told = supervised.states
    with pytest.raises(StackError, match="refused"):
        await supervised.run()
    assert told["component"].pid is None


async def test_no_process_outlives_the_supervisor(tmp_path: Path) -> None:
    script = "sleep 61 & echo $! > child; trap '' TERM; touch up; while :; do sleep 0.05; done"
    deaf = shell("deaf", script, ready=FileProbe(tmp_path / "up"), stop_seconds=0.1)
    async with running(supervisor(tmp_path, deaf)) as supervised:
        pid = supervised.states["deaf"].pid
        child = int((tmp_path / "child").read_text())
    assert pid is not None
    assert not alive(pid)
    await eventually(lambda: not alive(child))


async def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    deaf = shell(
        "deaf",
        "trap '' TERM; touch up; while :; do sleep 0.05; done",
        ready=FileProbe(tmp_path / "up"),
        stop_seconds=600,
    )
    supervised = supervisor(tmp_path, deaf)
    task = asyncio.create_task(supervised.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await supervised.ready()
        task.cancel()
        supervised.kill()
        with pytest.raises(asyncio.CancelledError):
            await task
