"""Finds prometheus and promtool: those of the machine, or those that `make test` has downloaded. Starts Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.service.user_cache import cache_dir
from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS

DIRECTORY = cache_dir() / "prometheus"


def program(name: str) -> str:
    """Returns the path of the program, or skips the test."""
    found = shutil.which(name) or shutil.which(name, path=str(DIRECTORY))
    if found is None:
        pytest.skip(f"{name} is not installed; run: sh requirements/prometheus.sh {DIRECTORY}")
    return found


def rules_directory() -> Path:
    return Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse" / "monitoring"


@contextmanager
def running_prometheus(
    directory: Path, scrape_configs: list[Any], ready: Callable[[str], bool], **config: Any
) -> Iterator[str]:
    """Yields the address of a Prometheus that scrapes every second, once `ready(address)` holds."""
    every_second = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    document = {"global": every_second, "scrape_configs": scrape_configs, **config}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(document))
    address = f"127.0.0.1:{free_port()}"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _until(lambda: ready(f"http://{address}"), directory / "log")
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _until(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"prometheus does not see its targets:\n{log.read_text()[-3000:]}")


def ask(address: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=PATIENCE_SECONDS) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    result: list[Any] = found["data"]["result"]
    return result
