"""One worker for a few requests and no service: what a command needs. The deadline and the user are the service's."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from defaulter import frames
from defaulter.errors import LibvirtUnavailable
from defaulter.handler import Answer
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.root_directories import RootDirectories, environment


class Once:
    """`with Once(...) as once: once.ask(frames.DOCUMENT, body)`; raises `Unable` when libvirt is late or absent."""

    def __init__(
        self, cluster: ClusterConfig, seed: str, user: tuple[int | None, int | None], warm: Path | None
    ) -> None:
        self._roots = RootDirectories(None, *user, warm=warm)
        self.root = root = self._roots.make(0)
        self._process = subprocess.Popen(
            (sys.executable, "-m", "defaulter.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment(root)},
            start_new_session=True,
        )
        settings = {"uid": user[0], "gid": user[1], "seed": seed, "cluster": asdict(cluster)}
        body = json.dumps({**settings, "root": str(root), "parent": os.getpid()}).encode()
        self._tell(frames.SETTINGS, body)

    def __enter__(self) -> Self:
        try:
            self.ask(frames.PROBE, b"", seconds=60)
        except BaseException:
            self.close()
            raise
        with suppress(OSError):
            self._roots.learn(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._roots.end_strays(0)
        self._roots.remove()

    def ask(self, tag: int, body: bytes, seconds: float = 10) -> Answer:
        self._tell(tag, body)
        with self._within(seconds) as read:
            status, length = frames.HEADER.unpack(read(frames.HEADER.size))
            return status, read(length)

    def _tell(self, tag: int, body: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(frames.pack(tag, body))
            self._process.stdin.flush()

    @contextmanager
    def _within(self, seconds: float) -> Iterator[_Read]:
        assert self._process.stdout is not None
        yield _Read(self._process.stdout.fileno(), time.monotonic() + seconds)


class _Read:
    def __init__(self, descriptor: int, until: float) -> None:
        self._descriptor, self._until = descriptor, until

    def __call__(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, self._until - time.monotonic()))
            part = os.read(self._descriptor, count - len(data)) if ready else b""
            if not part:
                raise LibvirtUnavailable("libvirt does not answer" if not ready else "libvirt cannot be started here")
            data += part
        return data
