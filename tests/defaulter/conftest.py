from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from defaulter.settings import Settings
from defaulter.worker_process import SingleWorker
from defaulter.worker_protocol import Operation
from tests.waiting import PATIENCE_SECONDS

Json = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    status: int
    content: Any

    @property
    def object(self) -> Json:
        assert self.status == 200, self.content
        found: Json = self.content["object"]
        return found

    @property
    def warnings(self) -> list[str]:
        found: list[str] = self.content["warnings"]
        return found

    @property
    def problems(self) -> dict[str, str]:
        assert self.status != 200, "nothing was wrong with it"
        return {problem["path"]: problem["message"] for problem in self.content["problems"]}


@dataclass
class Libvirt:
    """A real worker with a real libvirt."""

    once: SingleWorker
    asked: int = field(default=0)

    def default(self, document: Json, **envelope: Any) -> Answered:
        message = {"kind": "DefaultingRequest", "object": document, **envelope}
        return self.raw(json.dumps(message).encode())

    def raw(self, body: bytes) -> Answered:
        self.asked += 1
        status, content = self.once.ask(Operation.DOCUMENT, body, seconds=PATIENCE_SECONDS)
        return Answered(status, json.loads(content))

    def domain(self, document: Json, **envelope: Any) -> str:
        message = {"kind": "DefaultingRequest", "object": document, **envelope}
        status, content = self.once.ask(Operation.DOMAIN, json.dumps(message).encode(), seconds=PATIENCE_SECONDS)
        assert status == 200, content
        return content.decode()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What QEMU can do, found out once for all tests."""
    return tmp_path_factory.mktemp("qemu") / "warm"


@pytest.fixture(scope="session")
def user() -> tuple[int | None, int | None]:
    return Settings.read({}).user


@pytest.fixture(scope="session")
def libvirt(warm: Path, user: tuple[int | None, int | None]) -> Iterator[Libvirt]:
    with SingleWorker({"video": "fill"}, "", user, warm) as once:
        yield Libvirt(once)


@pytest.fixture(scope="session")
def recording(warm: Path, user: tuple[int | None, int | None]) -> Iterator[Libvirt]:
    """A worker that records the hardware too."""
    with SingleWorker({"video": "fill", "record": True}, "", user, warm) as once:
        yield Libvirt(once)


@pytest.fixture(scope="session")
def sealing(warm: Path, user: tuple[int | None, int | None]) -> Iterator[Libvirt]:
    """A worker of a cluster with a secret, which seals the hardware that it records."""
    with SingleWorker({"record": True}, "secret", user, warm) as once:
        yield Libvirt(once)
