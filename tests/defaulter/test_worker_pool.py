"""Workers that hang, die, leak or never start: each fails one request at most."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from defaulter.root_directories import RootDirectories
from defaulter.worker_pool import QueueFull, RequestFailed, WorkerLimits, WorkerPool
from defaulter.worker_protocol import Operation
from tests.defaulter.builders import disk, nic, spec, vm
from tests.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.libvirt

BODY = json.dumps(vm(spec(disk(), nic()))).encode()
LIMITS = WorkerLimits(workers=2, deadline_seconds=90)
"""long enough for a worker that is started again on a busy machine"""

Start = Callable[..., AbstractAsyncContextManager[WorkerPool]]


@pytest.fixture
def start(warm: Path, user: tuple[int | None, int | None]) -> Start:
    @asynccontextmanager
    async def started(
        limits: WorkerLimits = LIMITS, ready: bool = True, path: str = os.environ["PATH"], known: Path | None = warm
    ) -> AsyncIterator[WorkerPool]:
        roots = RootDirectories(None, *user, warm=known)
        settings = {"uid": user[0], "gid": user[1], "seed": "", "overrides": {}}
        workers = WorkerPool(limits, roots, settings, {"PATH": path})
        OF_OTHERS.clear()
        OF_OTHERS.update(children())
        running = asyncio.create_task(workers.run())
        try:
            if ready:
                await at(workers, limits.workers)
                await eventually(lambda: workers.counts.spare == limits.spares)  # one that starts is not confined yet
            yield workers
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await eventually(lambda: not children())  # one that was being killed is not waited for

    return started


OF_OTHERS: set[int] = set()
"""worker processes that were there before the pool, such as that of the fixture `libvirt`"""


def children() -> list[int]:
    """The worker processes of the pool, the newest last."""
    listed = [pid for task in Path("/proc/self/task").iterdir() for pid in said(task / "children").split()]
    found = {int(pid) for pid in listed if b"defaulter.worker" in said(Path(f"/proc/{pid.decode()}/cmdline"))}
    return sorted(found - OF_OTHERS, key=lambda pid: (started_at(pid), pid))


def started_at(pid: int) -> int:
    """In ticks since the machine's start. PIDs begin again at their limit."""
    fields = said(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return int(fields[19]) if fields else 0


def said(file: Path) -> bytes:
    """A file of /proc; empty where the process has just ended."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


async def at(workers: WorkerPool, count: int) -> None:
    """Returns when so many workers are ready."""
    await eventually(lambda: workers.counts.ready == count)


async def test_a_request_gets_a_response(start: Start) -> None:
    async with start() as workers:
        status, content = await workers.ask(Operation.DOCUMENT, BODY)
        assert status == 200
        assert b"pciAddress" in content


async def test_killed_workers_lose_no_waiting_request(start: Start) -> None:
    async with start() as workers:
        waiting = [asyncio.create_task(workers.ask(Operation.DOCUMENT, BODY)) for _ in range(100)]
        await asyncio.sleep(0.05)
        for pid in (killed := children()):
            os.kill(pid, signal.SIGKILL)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, Exception)]
        assert not lost
        await eventually(lambda: workers.counts.restarts.total() == len(killed))


async def test_a_killed_idle_worker_is_replaced_at_once(start: Start) -> None:
    async with start() as workers:
        for pid in (killed := children()):
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: workers.counts.restarts.total() >= len(killed))
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200


async def test_a_stopped_worker_fails_one_request_and_is_replaced(start: Start) -> None:
    async with start(replace(LIMITS, deadline_seconds=8)) as workers:
        os.kill(children()[0], signal.SIGSTOP)
        answers = await asyncio.gather(
            *(workers.ask(Operation.DOCUMENT, BODY) for _ in range(50)), return_exceptions=True
        )
        assert sum(isinstance(answer, RequestFailed) for answer in answers) == 1
        await eventually(lambda: workers.counts.restarts == {"late": 1})
        await at(workers, 2)


async def test_a_request_fails_in_time_when_all_workers_hang(start: Start) -> None:
    async with start(replace(LIMITS, deadline_seconds=0.5)) as workers:
        for pid in children():
            os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(RequestFailed, match=r"no answer within 0.5 s"):
                await workers.ask(Operation.DOCUMENT, BODY)


async def test_a_full_queue_rejects_requests_at_once(start: Start) -> None:
    async with start(replace(LIMITS, queue_length=10)) as workers:
        answers = await asyncio.gather(
            *(workers.ask(Operation.DOCUMENT, BODY) for _ in range(50)), return_exceptions=True
        )
        turned_away = [answer for answer in answers if isinstance(answer, QueueFull)]
        assert len(turned_away) == 40
        assert all(isinstance(answer, tuple | QueueFull) for answer in answers)


async def test_a_worker_is_replaced_when_it_is_old(start: Start) -> None:
    async with start(replace(LIMITS, workers=1, max_requests=5)) as workers:
        first = children()
        for _ in range(6):
            assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200
        # The spare answers before the old worker has ended.
        await eventually(lambda: workers.counts.restarts == {"old": 1})
        assert first[0] not in children()


async def test_a_worker_is_replaced_when_it_is_large(start: Start) -> None:
    async with start(replace(LIMITS, workers=1, max_resident_bytes=1)) as workers:
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200
        await eventually(lambda: workers.counts.restarts["large"] >= 1)


async def test_a_cancelled_request_is_dropped(start: Start) -> None:
    async with start(replace(LIMITS, workers=1)) as workers:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await workers.ask(Operation.DOCUMENT, BODY)
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200


async def test_workers_end_with_their_pool(start: Start) -> None:
    async with start():
        assert len(children()) == LIMITS.workers + LIMITS.spares
    assert not children()


async def test_killed_hung_and_starved_workers_fail_no_other_request(start: Start) -> None:
    limits = replace(LIMITS, deadline_seconds=20, restart_seconds=(0.05, 0.2))
    async with start(limits) as workers:
        waiting = [asyncio.create_task(workers.ask(Operation.DOCUMENT, unlike(number))) for number in range(60)]
        own = 0
        for harm in (kill, starve, hang, kill):
            await asyncio.sleep(0.05)
            own += harm(children()[0])
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, Exception) or answer[0] != 200]
        assert len(lost) <= own, lost
        await at(workers, 2)
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200


def unlike(number: int) -> bytes:
    """A VM that is not in the cache, so that libvirt is asked."""
    return json.dumps(vm(spec(disk(), nic(), domain={"memory": {"guest": f"{131072 + number}Ki"}}))).encode()


def kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return 0  # whoever it had is asked about again


def hang(pid: int) -> int:
    os.kill(pid, signal.SIGSTOP)
    return 1


def starve(pid: int) -> int:
    """No time on a processor, for a while."""
    os.kill(pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(0.5, _go_on, pid)
    return 0


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):  # somebody killed it meanwhile
        os.kill(pid, signal.SIGCONT)


@pytest.mark.sentence("4.19")
async def test_no_domain_stays_defined(start: Start) -> None:
    """libvirt writes each definition into a file below the worker's root, which goes with the domain."""
    async with start() as workers:
        for body in (BODY, b"{", json.dumps(vm(spec(disk(serial="x" * 500), nic()))).encode()):
            await asyncio.gather(*(workers.ask(Operation.DOCUMENT, body) for _ in range(10)))
        await eventually(lambda: workers.counts.spare == LIMITS.spares)  # a worker that starts defines a domain
        for pid in children():
            root = Path(os.fsdecode(environment_of(pid)["HOME"]))
            assert list((root / "etc/qemu").glob("*.xml")) == []
            assert (root / "cache").is_dir()


@pytest.mark.sentence("4.19")
async def test_workers_have_no_network(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can leave a network")
    async with start():
        for pid in children():
            assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
            assert devices_of(pid) == ["lo"]


def devices_of(pid: int) -> list[str]:
    return [line.split(":")[0].strip() for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]]


def environment_of(pid: int) -> dict[str, bytes]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {os.fsdecode(name): value for name, _, value in (pair.partition(b"=") for pair in pairs if pair)}


async def test_workers_run_without_privileges(start: Start, user: tuple[int | None, int | None]) -> None:
    async with start():
        for pid in children():
            assert uids(pid) == {user[0] if user[0] is not None else os.geteuid()}
            assert 0 not in uids(pid)


def uids(pid: int) -> set[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {int(uid) for uid in next(line for line in lines if line.startswith("Uid:")).split()[1:]}


@pytest.fixture
def hung() -> Iterator[Path]:
    """A directory of emulators that never answer."""
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    folder.chmod(0o755)
    for name in ("qemu-system-x86_64", "qemu-system-i386"):
        (folder / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (folder / name).chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def test_a_request_fails_in_time_when_the_emulator_hangs(start: Start, hung: Path) -> None:
    """libvirt waits for it without a limit, and every other define with it."""
    limits = replace(LIMITS, deadline_seconds=0.5, start_seconds=1.5)
    async with start(limits, ready=False, path=f"{hung}:/usr/bin:/bin", known=None) as workers:
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(RequestFailed, match="no answer"):
                    await workers.ask(Operation.DOCUMENT, BODY)
        await eventually(lambda: "did not start" in workers.counts.restarts)
        assert workers.counts.ready == 0


ARM = "qemu-system-aarch64"


@pytest.fixture
def arm() -> Iterator[Path]:
    """A copy of the emulator for arm64."""
    program = shutil.which(ARM)
    if program is None:
        pytest.skip(f"{ARM} is not installed")
    folder = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    modules = Path(program).resolve().parents[1] / "lib"
    (folder / "bin").mkdir()
    (folder / "lib").symlink_to(modules)
    shutil.copy2(program, folder / "bin" / ARM)
    for path in (folder, folder / "bin"):
        path.chmod(0o755)
    yield folder / "bin" / ARM
    shutil.rmtree(folder)


def replace_with(program: Path, other: str) -> None:
    program.unlink()
    shutil.copy2(other, program)


def arm_vm(name: str) -> bytes:
    """A VM whose shape no worker knows."""
    return json.dumps({**vm(spec(disk(name))), "spec": {"template": {"spec": {**spec(disk(name)), **ON_ARM}}}}).encode()


ON_ARM = {"architecture": "arm64"}


async def test_an_emulator_that_is_replaced_is_found_again_by_new_workers(start: Start, arm: Path) -> None:
    limits = WorkerLimits(workers=1, spares=0, deadline_seconds=PATIENCE_SECONDS)
    original = shutil.which(ARM) or ""
    async with start(limits, path=f"{arm.parent}:/usr/bin:/bin", known=None) as workers:
        assert (await workers.ask(Operation.DOCUMENT, arm_vm("a")))[0] == 200
        replace_with(arm, "/bin/false")
        status, content = await workers.ask(Operation.DOCUMENT, arm_vm("b"))
        assert status == 501
        assert b"the emulator for aarch64 does not work" in content
        assert str(arm.parent).encode() not in content
        await eventually(lambda: workers.counts.restarts["died"] == 1 and workers.counts.ready == 1)
        for name in "cd":  # the new worker has no such emulator, and needs not be replaced
            status, content = await workers.ask(Operation.DOCUMENT, arm_vm(name))
            assert (status, b"there is no emulator for arm64 here" in content) == (501, True)
        assert (await workers.ask(Operation.DOCUMENT, BODY))[0] == 200
        assert workers.counts.restarts["died"] == 1
        replace_with(arm, original)
    async with start(limits, path=f"{arm.parent}:/usr/bin:/bin", known=None) as workers:
        assert (await workers.ask(Operation.DOCUMENT, arm_vm("e")))[0] == 200
        replace_with(arm, original)
        assert (await workers.ask(Operation.DOCUMENT, arm_vm("f")))[0] == 501
        await eventually(lambda: workers.counts.restarts["died"] == 1 and workers.counts.ready == 1)
        assert (await workers.ask(Operation.DOCUMENT, arm_vm("f")))[0] == 200
