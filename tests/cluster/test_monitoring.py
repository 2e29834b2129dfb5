"""A real Prometheus scrapes a running stack: the reference page is what services say, and every panel has an answer."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import tarfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import poolhouse
from local.paths import StackPaths
from monitoring import dashboard
from monitoring.metrics import MAKERS, measures
from tests.conftest import stack
from tests.monitoring.prometheus import program, rules_directory
from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "pool.yaml"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPaths]:
    """A stack with a pool whose VMs run."""
    paths = StackPaths(tmp_path_factory.mktemp("monitoring"))
    with stack(paths, "--engine", "simulated", "--apply", str(EXAMPLE)):
        yield paths


@pytest.fixture(scope="module")
def prometheus(running: StackPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has our rules and scrapes the stack every second."""
    there = tmp_path_factory.mktemp("prometheus")
    endpoints = json.loads(running.endpoints.read_text())
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules_directory() / name) for name in ("alerts.yaml", "recording.yaml")],
        "scrape_configs": [
            {
                "job_name": f"poolhouse-{name}",
                "scheme": urllib.parse.urlsplit(endpoints[name]).scheme,
                "tls_config": {"ca_file": endpoints["ca"]},
                "static_configs": [{"targets": [urllib.parse.urlsplit(endpoints[name]).netloc]}],
            }
            for name in ("webhook", "controllers", "defaulter")
        ],
    }
    (there / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (there / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={there / 'prometheus.yml'}",
                f"--storage.tsdb.path={there / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _until(lambda: len(_ask(address, "up == 1")) == len(config["scrape_configs"]), there / "log")
            # Rates want two scrapes.
            _until(lambda: bool(_ask(address, "min(count_over_time(up[1m])) >= 3")), there / "log")
            yield address
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def _until(holds: Any, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"prometheus does not see the stack:\n{log.read_text()[-3000:]}")


def _ask(address: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=PATIENCE_SECONDS) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    result: list[Any] = found["data"]["result"]
    return result


@pytest.mark.parametrize("service", ["webhook", "controllers", "defaulter"])
def test_a_service_says_what_the_reference_page_says(running: StackPaths, service: str) -> None:
    endpoints = json.loads(running.endpoints.read_text())
    trust = ssl.create_default_context(cafile=endpoints["ca"])
    with urllib.request.urlopen(f"{endpoints[service]}/metrics", timeout=PATIENCE_SECONDS, context=trust) as answer:
        said = set(re.findall(r"^# TYPE (kubevirt_poolhouse_\S+)", answer.read().decode(), re.M))
    said = {name for name in said if not name.endswith("_created")}  # the client library's own
    written = {each.name for of in MAKERS if service in of for each in measures(of)}
    assert said == written


@pytest.mark.parametrize("expression", list(dashboard.expressions()))
def test_every_panel_asks_what_prometheus_understands(prometheus: str, expression: str) -> None:
    _ask(prometheus, expression)


@pytest.mark.parametrize("title", ["Desired and ready VMs", "Admission latency", "Leaders", "Memory"])
def test_a_panel_has_something_to_show(prometheus: str, title: str) -> None:
    panel = next(panel for row in dashboard.ROWS for panel in row.panels if panel.title == title)
    for expression in dashboard.queries(panel):
        wait_until(lambda expression=expression: _ask(prometheus, expression))


def test_nothing_is_wrong_with_a_stack_that_runs(prometheus: str) -> None:
    wait_until(lambda: _ask(prometheus, "cluster:kubevirt_poolhouse_vmpool_desired_replicas:sum == 3"))
    assert _ask(prometheus, 'ALERTS{alertstate="firing"}') == []


def test_a_support_bundle_has_what_a_helper_asks_for(running: StackPaths, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        poolhouse, ["support-bundle", "--dir", str(running.dir), "-f", str(tmp_path / "bundle.tar.gz"), "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["problems"] == []
    with tarfile.open(said["file"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == set(said["files"])
    assert {
        "virtualmachinepools.yaml",
        "virtualmachines-of-pools.yaml",
        "revisions.yaml",
        "stack.json",
        "events.yaml",
        "leases.yaml",
        "customresourcedefinitions.yaml",
        "mutatingwebhookconfigurations.yaml",
        "kubernetes.yaml",
        "versions.yaml",
        "logs/controllers.log",
    } <= names
