"""A real Prometheus scrapes a running stack: the reference page is what services say, and every panel has an answer."""

from __future__ import annotations

import json
import re
import ssl
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from poolhouse.cli.main import poolhouse
from poolhouse.generate import dashboard
from poolhouse.generate.metrics import MAKERS, measures
from poolhouse.stack.paths import StackPaths
from tests.generate.prometheus import ask, running_prometheus
from tests.waiting import PATIENCE_SECONDS, wait_until

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pool.yaml"


@pytest.fixture(scope="module")
def prometheus(whole: StackPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the stack's configuration of it, which scrapes every second."""
    config = yaml.safe_load(whole.prometheus.read_text())
    targets, rules = config["scrape_configs"], config["rule_files"]
    assert [Path(each).name for each in rules] == ["alerts.yaml", "recording.yaml"]

    def ready(address: str) -> bool:
        # Rates want two scrapes.
        seen = len(ask(address, "up == 1")) == len(targets)
        return seen and bool(ask(address, "min(count_over_time(up[1m])) >= 3"))

    with running_prometheus(tmp_path_factory.mktemp("prometheus"), targets, ready, rule_files=rules) as address:
        yield address


@pytest.mark.parametrize("service", ["webhook", "controllers", "defaulter"])
def test_a_service_exports_the_documented_metrics_and_no_others(whole: StackPaths, service: str) -> None:
    endpoints = json.loads(whole.endpoints.read_text())
    trust = ssl.create_default_context(cafile=endpoints["ca"])
    with urllib.request.urlopen(f"{endpoints[service]}/metrics", timeout=PATIENCE_SECONDS, context=trust) as answer:
        said = set(re.findall(r"^# TYPE (kubevirt_poolhouse_\S+)", answer.read().decode(), re.M))
    said = {name for name in said if not name.endswith("_created")}  # the client library's own
    written = {each.name for of in MAKERS if service in of for each in measures(of)}
    assert said == written


@pytest.mark.parametrize("expression", list(dashboard.expressions()))
def test_every_panel_asks_what_prometheus_understands(prometheus: str, expression: str) -> None:
    ask(prometheus, expression)


@pytest.mark.parametrize("title", ["Desired and ready VMs", "Admission latency", "Leaders", "Memory"])
def test_a_panel_has_something_to_show(prometheus: str, title: str) -> None:
    panel = next(panel for row in dashboard.ROWS for panel in row.panels if panel.title == title)
    for expression in dashboard.queries(panel):
        wait_until(lambda expression=expression: ask(prometheus, expression))


def test_nothing_is_wrong_with_a_stack_that_runs(prometheus: str) -> None:
    wait_until(lambda: ask(prometheus, "cluster:kubevirt_poolhouse_vmpool_desired_replicas:sum == 3"))
    assert ask(prometheus, 'ALERTS{alertstate="firing"}') == []


def test_a_support_bundle_has_what_a_helper_asks_for(whole: StackPaths, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        poolhouse, ["support-bundle", "--dir", str(whole.dir), "-f", str(tmp_path / "bundle.tar.gz"), "-o", "json"]
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
