"""Containers with an image: with a real podman, where it can run containers, and without podman."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from poolhouse_agent.podman import store_text

from tests.agent.process import Json, finished, running, running_agent
from tests.waiting import eventually

IMAGE = "localhost/poolhouse-agent-test:1"
APPLETS = ("sh", "cat", "echo", "pwd", "sleep", "test", "touch", "true")
CONFIGURATION = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n'
"""podman's usual runtime needs version 2 of cgroups, and the right to raise limits"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of an agent whose podman has an image with busybox."""
    busybox = Path(shutil.which("busybox") or Path.home() / ".cache/poolhouse/guest/busybox")
    if shutil.which("podman") is None or not busybox.exists():
        pytest.skip("needs podman and busybox")
    directory = tmp_path_factory.mktemp("podman")
    (directory / "containers.conf").write_text(CONFIGURATION)
    environment = {"CONTAINERS_CONF": str(directory / "containers.conf")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["podman", *arguments],
            check=False,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    with tarfile.open(directory / "image.tar", "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        archive.addfile(_directory("tmp"), io.BytesIO())
    imported = run("import", str(directory / "image.tar"), IMAGE)
    tried = run("run", "--rm", "--network", "host", "--log-driver", "none", IMAGE, "true")
    if imported.returncode or tried.returncode:
        pytest.skip(f"podman cannot run containers here: {imported.stderr or tried.stderr}")
    yield environment
    run("rmi", "--force", IMAGE)


def _directory(name: str) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.mode = tarfile.DIRTYPE, 0o1777
    return found


def in_image(script: str, name: str = "main", **more: object) -> Json:
    command = ["/bin/sh", "-c"]
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command, "args": [script], **more}


def names_of_containers() -> str:
    return subprocess.check_output(["podman", "ps", "--all", "--format", "{{.Names}}"], text=True)


def directory_of_store() -> str:
    return subprocess.check_output(["podman", "info", "--format", "{{.Store.GraphRoot}}"], text=True).strip()


async def test_podman_runs_a_container_with_its_settings(tmp_path: Path, podman: dict[str, str]) -> None:
    volumes = [{"name": "v", "configMap": {"name": "c"}, "files": [{"path": "greeting", "content": b"hello\n"}]}]
    main = in_image(
        'cat /settings/greeting; echo "$LINES"; echo $WORD; pwd; ! touch /settings/x; exit 4',
        workingDir="/tmp",
        env=[{"name": "LINES", "value": "two\nlines"}, {"name": "WORD", "value": "a b"}],
        volumeMounts=[{"name": "v", "mountPath": "/settings"}],
    )
    async with running_agent(tmp_path, **podman) as agent:
        await agent.launch({"restartPolicy": "Never", "volumes": volumes, "containers": [main]})
        status = await agent.until(finished)
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
        lines = (await agent.logs("main")).splitlines()
        assert [each for each in lines if "read-only" not in each.lower()] == ["hello", "two", "lines", "a b", "/tmp"]


async def test_podman_containers_are_probed_and_terminated(tmp_path: Path, podman: dict[str, str]) -> None:
    ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "timeoutSeconds": 30}
    obeys = in_image(
        "trap 'echo bye; exit 0' TERM; touch /tmp/ready; while :; do sleep 0.1; done", readinessProbe=ready
    )
    ignores = in_image("trap '' TERM; touch /tmp/ready; while :; do sleep 1; done", "ignores", readinessProbe=ready)
    async with running_agent(tmp_path, **podman) as agent:
        await agent.launch({"containers": [obeys, ignores]})
        # Before, podman itself would get the signal.
        await agent.until(lambda status: running(status) and all(each["ready"] for each in status["containerStatuses"]))
        await agent.terminate(gracePeriodSeconds=2)
        codes = [each["state"]["terminated"]["exitCode"] for each in (await agent.status())["containerStatuses"]]
        assert codes == [0, 137]
        assert await agent.logs("main", tailLines=1) == "bye\n"
    assert "poolhouse-a-" not in names_of_containers()


async def test_a_container_that_podman_has_not_started_yet_has_not_succeeded(tmp_path: Path) -> None:
    """A signal ends podman itself until then, with exit code 0, and the container that it has created stays."""
    slow, begun, calls = tmp_path / "podman", tmp_path / "begun", tmp_path / "calls"
    create = f"trap 'exit 0' TERM; touch {begun}; while :; do sleep 0.1; done"
    slow.write_text(f'#!/bin/sh\necho "$1 $2" >> {calls}\ncase $1 in run) {create};; container) echo created;; esac\n')
    slow.chmod(0o755)
    async with running_agent(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}") as agent:
        await agent.launch({"containers": [{"name": "main", "image": IMAGE}]})
        await eventually(begun.exists)
        await agent.terminate(gracePeriodSeconds=30)
        (status,) = (await agent.status())["containerStatuses"]
        ended = status["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert "rm --force" in calls.read_text(), "it is not left behind"


async def test_an_image_that_podman_does_not_have_is_explained(tmp_path: Path, podman: dict[str, str]) -> None:
    never = {"name": "never", "image": "localhost/absent:1", "imagePullPolicy": "Never"}
    pulled = {"name": "pulled", "image": "localhost:1/absent:1"}
    async with running_agent(tmp_path, **podman) as agent:
        await agent.launch({"containers": [never, pulled]})
        status = await agent.until(
            lambda status: all(each["state"]["waiting"].get("message") for each in status["containerStatuses"])
        )
        reasons = [each["state"]["waiting"]["reason"] for each in status["containerStatuses"]]
        assert (status["phase"], reasons) == ("Pending", ["ErrImageNeverPull", "ErrImagePull"])
        message = status["containerStatuses"][0]["state"]["waiting"]["message"]
        assert message.startswith("image 'localhost/absent:1' must not be pulled, and the agent's store, which is that")
        assert f" in {directory_of_store()}, has " in message


async def test_a_store_that_podman_cannot_read_is_no_absent_image(tmp_path: Path) -> None:
    broken = tmp_path / "podman"
    broken.write_text("#!/bin/sh\necho 'Error: database static dir does not match' >&2\nexit 125\n")
    broken.chmod(0o755)
    never = {"name": "never", "image": IMAGE, "imagePullPolicy": "Never"}
    async with running_agent(tmp_path, PATH=str(tmp_path)) as agent:
        await agent.launch({"containers": [never, {"name": "pulled", "image": IMAGE}]})
        status = await agent.until(
            lambda status: all(each["state"]["waiting"].get("message") for each in status["containerStatuses"])
        )
        problem = f"podman cannot look for image {IMAGE!r}: Error: database static dir does not match"
        for each in status["containerStatuses"]:
            waiting = each["state"]["waiting"]
            assert (waiting["reason"], waiting["message"]) == ("ImageInspectError", problem)


@pytest.mark.parametrize(
    ("user", "place", "images", "expected"),
    [
        (0, "/store", ["a:1", "b:2"], "that of root in /store, has a:1, b:2"),
        (7, "/store", [], "that of the user 7 in /store, is empty"),
        (0, "", ["a:1"], "that of root in an unknown directory, has a:1"),
        (
            0,
            "/s",
            [f"a:{n}" for n in range(12)],
            "in /s, has " + ", ".join(f"a:{n}" for n in range(10)) + ", and 2 more",
        ),
    ],
)
def test_the_text_of_an_image_store(user: int, place: str, images: list[str], expected: str) -> None:
    assert store_text(user, place, images).endswith(expected)


async def test_without_podman_an_image_is_refused(tmp_path: Path) -> None:
    async with running_agent(tmp_path, PATH=str(tmp_path)) as agent:
        await agent.launch({"containers": [{"name": "main", "image": IMAGE}]})
        status = await agent.until(lambda status: bool(status["message"]))
        assert status["phase"] == "Pending"
        waiting = status["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "ImageNotSupported"
        assert waiting["message"].startswith(f"image {IMAGE!r} needs podman in this VM")


async def test_a_container_does_not_survive_its_shim(tmp_path: Path, podman: dict[str, str]) -> None:
    main = in_image("while :; do sleep 1; done")
    async with running_agent(tmp_path, **podman) as agent:
        await agent.launch({"restartPolicy": "Never", "containers": [main]})
        await agent.until(running)
        await eventually(lambda: "poolhouse-a-main" in names_of_containers())
        shim = json.loads((tmp_path / "run" / "runs" / "main" / "0" / "process").read_text())["shim"]
        os.kill(shim, signal.SIGKILL)
        status = await agent.until(finished)
        assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert "poolhouse-a-main" not in names_of_containers()
