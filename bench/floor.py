"""Bare libvirt in a process of its own: replays what the service asks libvirt for, and nothing else.

Reads lines of JSON `{"document", "times", "threads"}` and answers each with the seconds that every replay took.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from defaulter.defaulting import VMRequest, set_defaults
from defaulter.domain import NAME, PLACEHOLDER_UUID
from defaulter.driver import Libvirt
from defaulter.kubevirt_defaults import ClusterConfig
from defaulter.root_directories import environment
from defaulter.settings import Settings
from defaulter.worker import drop_privileges


class Recorder:
    """A libvirt that keeps what it is asked to define."""

    def __init__(self, host: Libvirt) -> None:
        self._host = host
        self.asked: list[str] = []

    def machines(self) -> Any:
        return self._host.machines()

    def cpu_models(self, arch: str) -> Any:
        return self._host.cpu_models(arch)

    def knows_cpu_feature(self, arch: str, name: str) -> bool:
        return self._host.knows_cpu_feature(arch, name)

    def version(self) -> str:
        return self._host.version()

    def qemu(self) -> str:
        return self._host.qemu()

    @contextmanager
    def scratch(self) -> Iterator[Callable[[str], str]]:
        with self._host.scratch() as define:

            def recorded(text: str) -> str:
                self.asked.append(text)
                return define(text)

            yield recorded


def replay(host: Libvirt, texts: list[str]) -> float:
    begun = time.perf_counter()
    with host.scratch() as define:
        for text in texts:
            define(text)
    return time.perf_counter() - begun


def main() -> None:
    drop_privileges(*Settings.read({}).user)
    root = Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp"))
    os.environ |= environment(root)
    host = Libvirt(root)
    for line in sys.stdin:
        asked = json.loads(line)
        recorder = Recorder(host)
        set_defaults(VMRequest(asked["document"]), ClusterConfig(), recorder)
        threads, times = asked["threads"], asked["times"]
        # Each thread has a domain of its own, as the service's workers do.
        uuid = complete_uuid(recorder.asked[0])
        scripts = [[personal(text, uuid, i) for text in recorder.asked] for i in range(threads)]
        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            shares = pool.map(partial(_share, host, times // threads), scripts)
            seconds = [second for share in shares for second in share]
        print(json.dumps({"seconds": seconds, "total": time.perf_counter() - begun}), flush=True)
    shutil.rmtree(root)


def _share(host: Libvirt, times: int, script: list[str]) -> list[float]:
    return [replay(host, script) for _ in range(times)]


def complete_uuid(text: str) -> str:
    return text.partition("<uuid>")[2].partition("</uuid>")[0] or PLACEHOLDER_UUID


def personal(text: str, uuid: str, index: int) -> str:
    other = uuid[:-3] + f"{index:03x}"
    return text.replace(uuid, other).replace(f"<name>{NAME}</name>", f"<name>{NAME}-{index}</name>")


if __name__ == "__main__":
    main()
