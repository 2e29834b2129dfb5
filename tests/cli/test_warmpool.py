"""`poolhouse warmpool`: rows of the status, findings that last, and the import of configurations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from controllers.claim.snapshot import CLAIMS
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner
from poolhouse.api.kinds import meta
from poolhouse.cli.warmpool import STATUS, examine, pool_row, warmpool
from poolhouse.runtime.resource import VMS, Resource
from tests.cli.test_virtual_kubelet import SAMPLE, WHOLE

NOW = datetime(2026, 1, 2, tzinfo=UTC)
METADATA = {"name": "web", "namespace": "a", "generation": 1, "creationTimestamp": "2026-01-01T23:59:30Z"}


def shown(**status: Any) -> list[str]:
    document = {"metadata": METADATA, "spec": {"replicas": 3, "default": True}, "status": status}
    head, line = STATUS.lines("wide", [pool_row(document, NOW)])
    assert head.split() == [each.title for each in STATUS.columns]
    return [cell.strip() for cell in click.unstyle(line).split("   ") if cell.strip()]


def test_the_row_of_a_pool_has_its_counts_and_problem() -> None:
    conditions = [
        {"type": "Available", "status": "False", "reason": "TooFew", "message": "1 of 3"},
        {"type": "Degraded", "status": "True", "reason": "Breaker", "message": "quota"},
        {"type": "Ready", "status": "False", "reason": "Breaker", "message": "quota"},
        {"type": "Stalled", "status": "True", "reason": "Breaker", "message": "quota"},
        {"type": "Default", "status": "False", "reason": "NotWanted", "message": ""},
    ]
    said = shown(
        observedGeneration=1,
        availableReplicas=1,
        queuedClaims=1,
        claimed=2,
        failures={"consecutive": 2},
        conditions=conditions,
    )
    assert said == [*("web", "3", "1", "2", "1", "30s", "true", "2 claimed", "2", "Degraded", "Breaker: quota")]


def test_the_row_of_a_new_pool_has_zeros() -> None:
    assert shown() == [
        *("web", "3", "0", "0", "0", "30s", "true", "-", "-", "Progressing"),
        "the controller has not observed the last change yet",
    ]


FREE: dict[str, Any] = {"metadata": {"name": "web-a", "namespace": "a", "uid": "vm"}}
MINE = {meta.CLAIM_UID: "c", meta.WARM_STATE: "InUse"}
OWNED = {"labels": MINE, "ownerReferences": [Owner(CLAIM_KIND, "mine", "c").json()]}
TAKEN = {"metadata": {**FREE["metadata"], **OWNED}}
ASKED = {"metadata": {"name": "mine", "namespace": "a", "uid": "c"}, "spec": {}}
SERVED = {**ASKED, "status": {"phase": "Ready", "poolName": "web", "vmRef": {"name": "web-a", "uid": "vm"}}}


class SuccessiveLists:
    """An API server that returns the next list at each request."""

    def __init__(self, machines: list[list[Any]], claims: list[list[Any]]) -> None:
        self.left = {VMS: [*machines], CLAIMS: [*claims]}

    def now(self) -> datetime:
        return NOW

    async def list(self, resource: Resource, namespace: str | None, **asked: Any) -> tuple[list[Any], str]:
        return (self.left[resource].pop(0) if resource in self.left else []), "1"


@pytest.mark.parametrize(
    ("machines", "claims", "expected"),
    [
        pytest.param([[TAKEN]], [[SERVED]], [], id="no problem"),
        pytest.param([[], [TAKEN]], [[SERVED], [SERVED]], [], id="a claim bound between two lists"),
        pytest.param([[TAKEN], []], [[], []], [], id="a claim released between two lists"),
        pytest.param([[], []], [[SERVED], [SERVED]], ["Inconsistent"], id="a lasting problem"),
        pytest.param([[], [TAKEN]], [[SERVED], []], [], id="another problem each time"),
    ],
)
async def test_only_lasting_problems_are_found(machines: list[Any], claims: list[Any], expected: list[str]) -> None:
    api = SuccessiveLists(machines, claims)
    found = await examine(api, "a", recheck_seconds=0)
    assert [each.problem for _, each in found] == expected
    assert api.left == {VMS: [], CLAIMS: []}


FRAGMENT = f'  "WarmPoolConfig": {json.dumps(SAMPLE, indent=2)} \n'


def run(text: str, *options: str) -> Result:
    return CliRunner().invoke(warmpool, ["import", "-", *options], input=text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FRAGMENT, id="a field without braces"),
        pytest.param(FRAGMENT.rstrip() + ",", id="a field with a trailing comma"),
        pytest.param(f"{{{FRAGMENT}}}", id="an object"),
        pytest.param(json.dumps(SAMPLE), id="the list alone"),
        pytest.param(yaml.safe_dump({"WarmPoolConfig": SAMPLE}), id="YAML"),
        pytest.param(
            yaml.safe_dump({"kind": "ConfigMap", "data": {"config.json": json.dumps({"WarmPoolConfig": SAMPLE})}}),
            id="a ConfigMap",
        ),
    ],
)
@pytest.mark.sentence("5.55")
def test_every_form_of_the_sample_is_read(text: str) -> None:
    done = run(text)
    assert done.exit_code == 0, done.output
    pools = list(yaml.safe_load_all(done.stdout))
    assert [each["spec"]["replicas"] for each in pools] == [2, 5, 3, 1]
    assert "WarmPoolConfig[1].Subnets: is missing" in done.stderr


def test_json_is_one_list(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(WHOLE))
    done = CliRunner().invoke(warmpool, ["import", str(file), "--to", "vm", "-o", "json", "-n", "mac"])
    (item,) = json.loads(done.stdout)["items"]
    assert item["metadata"] == {"name": "warmpool-1", "namespace": "mac"}
    assert "template" in item["spec"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('{"WarmPoolConfig": [', "invalid JSON", id="half a file"),
        pytest.param('{"WarmPoolConfig": [], "WarmPoolConfig": []}', "duplicate fields", id="a field twice"),
        pytest.param("a: [b", "neither JSON nor YAML", id="nothing at all"),
        pytest.param("kind: ConfigMap", "not 0", id="a ConfigMap of something else"),
        pytest.param('"WarmPoolConfig": [{}]', "DesiredCount: is missing", id="an empty pool"),
    ],
)
def test_an_invalid_configuration_is_refused(text: str, words: str) -> None:
    done = run(text)
    assert done.exit_code == 1
    assert words in done.stderr
    assert done.stdout == ""
