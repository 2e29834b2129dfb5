"""`up --apply`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unavailable, Unreachable, WebhookFailed
from poolhouse.stack.components import StackError
from poolhouse.stack.progress import ProgressDisplay, read_manifests
from tests.virtual_loop import VirtualLoop

POOL = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "metadata": {"name": "web"}}


def test_all_problems_of_manifests_are_reported_before_the_stack_starts(tmp_path: Path) -> None:
    texts = {
        "good.yaml": "{apiVersion: kubevirt.io/v1, kind: VirtualMachinePool, metadata: {name: web}}",
        "prose.yaml": "a: b: c",
        "list.yaml": "[1, 2]",
        "chart.yaml": "apiVersion: v2",
        "map.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}",
        "nameless.yaml": "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {}}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in texts]
    with pytest.raises(StackError) as refused:
        read_manifests([*files, tmp_path / "absent.yaml"])
    for name in [*texts, "absent.yaml"]:
        assert (name in str(refused.value)) == (name != "good.yaml")
    assert "metadata.name of a VirtualMachine is missing" in str(refused.value)
    assert [document["kind"] for document in read_manifests(files[:1])] == ["VirtualMachinePool"]


def test_manifests_are_utf_8_in_each_locale(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text("{apiVersion: kubevirt.io/v1, kind: VirtualMachinePool, metadata: {name: Jörg}}", encoding="utf-8")
    code = (
        "import pathlib, sys; from poolhouse.stack.progress import read_manifests as r; r([pathlib.Path(sys.argv[1])])"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(file)], env=environment, check=True)


class Answers:
    """An API server that gives these answers to creations, and lists nothing."""

    def __init__(self, *answers: ApiError | None) -> None:
        self.answers = list(answers)

    async def get(self, *_: Any) -> Any:
        raise NotFound("no such pool")

    async def create(self, *_: Any) -> None:
        if (answer := self.answers.pop(0)) is not None:
            raise answer

    async def list(self, *_: Any) -> Any:
        await asyncio.Event().wait()


@pytest.mark.parametrize("error", [Unreachable("Server disconnected"), Unavailable("etcd"), WebhookFailed("refused")])
def test_a_restart_of_the_api_server_does_not_end_the_stack(error: ApiError) -> None:
    said = shown(Answers(error, error, None))
    assert said == [
        f"VirtualMachinePool web is applied again until there is an answer: {error.message}",
        "applied VirtualMachinePool web",
    ]


def test_a_refusal_ends_the_stack() -> None:
    with pytest.raises(StackError, match="VirtualMachinePool web was refused: no"):
        shown(Answers(Forbidden("no")))


def shown(api: Any) -> list[str]:
    lines: list[str] = []

    async def display() -> None:
        async with asyncio.timeout(60):
            await ProgressDisplay([POOL], lines.append).run(api)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moment_seconds=0)) as runner, suppress(TimeoutError):
        runner.run(display())
    return lines
