"""`poolhouse warmpool import` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.warmpool import warmpool
from tests.cli.test_virtual_kubelet import SAMPLE, WHOLE

FRAGMENT = f'  "WarmPoolConfig": {json.dumps(SAMPLE, indent=2)} \n'


def run(text: str, *options: str) -> Result:
    return CliRunner().invoke(warmpool, ["import", "-", *options], input=text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FRAGMENT, id="the fragment that the document shows"),
        pytest.param(FRAGMENT.rstrip() + ",", id="with the comma that follows it"),
        pytest.param(f"{{{FRAGMENT}}}", id="an object"),
        pytest.param(json.dumps(SAMPLE), id="the list alone"),
        pytest.param(yaml.safe_dump({"WarmPoolConfig": SAMPLE}), id="YAML"),
        pytest.param(
            yaml.safe_dump({"kind": "ConfigMap", "data": {"config.json": json.dumps({"WarmPoolConfig": SAMPLE})}}),
            id="a ConfigMap",
        ),
    ],
)
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
        pytest.param('{"WarmPoolConfig": [', "no JSON", id="half a file"),
        pytest.param('{"WarmPoolConfig": [], "WarmPoolConfig": []}', "given twice", id="a field twice"),
        pytest.param("a: [b", "neither JSON nor YAML", id="nothing at all"),
        pytest.param("kind: ConfigMap", "not 0", id="a ConfigMap of something else"),
        pytest.param('"WarmPoolConfig": [{}]', "DesiredCount: is missing", id="an empty pool"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_printed(text: str, words: str) -> None:
    done = run(text)
    assert done.exit_code == 1
    assert words in done.stderr
    assert done.stdout == ""
