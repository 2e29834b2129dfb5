"""Results of benchmarks are compared where they can be compared."""

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import results
from tests.bench.__main__ import NAMES, main


def result(processor: str = "x", **figures: float) -> dict[str, Any]:
    rows = [{"section": "", "what": "0 -> 10", "measured": "", "figures": figures}]
    return {"machine": {"processor": processor}, "complete": True, "rows": rows}


@pytest.mark.parametrize(
    ("before", "now", "compared"),
    [
        pytest.param(
            result(ratio=1.5, p99_ms=20), result(ratio=1.2, p99_ms=10), {"ratio", "p99_ms"}, id="the same machine"
        ),
        pytest.param(
            result(ratio=1.5, p99_ms=20, idle_mb=90, rate_per_second=5),
            result("y", ratio=1.2, p99_ms=10, idle_mb=80, rate_per_second=9),
            {"ratio", "idle_mb"},
            id="times of another machine say nothing",
        ),
        pytest.param(result(ratio=1.5), result(other=1), set(), id="a figure that only one of them has"),
    ],
)
def test_figures_that_can_be_compared(before: Any, now: Any, compared: set[str]) -> None:
    found = {key.rpartition(": ")[2] for _, key, _, _ in results.compare({"pool": before}, {"pool": now, "new": now})}
    assert found == compared


def test_the_last_release_is_the_newest_version(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.10.0-rc.1"):
        (tmp_path / f"{version}.json").write_text(json.dumps({"pool": result()}))
    assert results.release(releases=tmp_path)[0] == "0.10.0"
    assert results.release("0.9.0", tmp_path)[0] == "0.9.0"
    with pytest.raises(SystemExit, match=r"only of: 0\.9\.0, 0\.10\.0"):
        results.release("0.8.0", tmp_path)


def test_a_benchmark_that_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, runs, releases = tmp_path / "rows", tmp_path / "runs", tmp_path / "releases"
    monkeypatch.setenv(results.ROWS, str(rows))
    results.append("", "0 -> 10", "ratio 1.20", {"ratio": 1.2})
    results.save("pool", [], rows, 0.0, complete=False, to=runs)
    with pytest.raises(SystemExit, match="pool"):
        results.keep("0.2.0", ["pool"], runs, releases)
    results.save("pool", [], rows, 0.0, complete=True, to=runs)
    with pytest.raises(SystemExit, match="claim"):
        results.keep("0.2.0", ["claim", "pool"], runs, releases)
    results.keep("0.2.0", ["pool"], runs, releases)
    assert results.release(releases=releases)[1]["pool"]["rows"][0]["figures"] == {"ratio": 1.2}


def test_a_run_that_fails_leaves_the_result_of_the_last_one(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("")
    results.save("pool", ["--vms", "5"], rows, 0.0, complete=True, to=tmp_path)
    results.save("pool", [], rows, 0.0, complete=False, to=tmp_path)
    assert {name: each["options"] for name, each in results.last(tmp_path).items()} == {"pool": ["--vms", "5"]}
    with pytest.raises(SystemExit, match="pool"):
        results.keep("0.2.0", ["pool"], tmp_path, tmp_path / "releases")


def test_a_result_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_text("{")
    with pytest.raises(SystemExit, match=r"pool\.json is not JSON"):
        results.last(tmp_path)


def test_a_comparison_says_what_differs() -> None:
    now = {"machine": {"cores": 2}, "options": ["--vms", "5"], "load": 3.0}
    before = {"machine": {"cores": 4}, "options": [], "load": 0.0}
    assert results.differences(before, None, "1.0") == ["no result on this machine"]
    assert results.differences(None, now, "1.0") == ["no result in 1.0"]
    assert results.differences(before, now, "1.0") == [
        "another machine, so times and rates are left out",
        "other options: --vms 5, and in 1.0: none",
        "the machine was busy: load 3.0",
    ]
    assert results.differences(before, before, "1.0") == []


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("pool", ["--vms", "-5"], "-5 is not 0 or greater"),
        ("pool", ["--vms", "0"], "--vms must be at least 1"),
        ("pool", ["--vms", "x"], "invalid int value: 'x'"),
        ("pool", ["--dir", "/nonexistent"], "/nonexistent has no kubeconfig"),
        ("claim", ["--burst", "50"], "--burst must be 0, or at least 100"),
        ("claim", ["--rate", "0"], "--rate and --turns must be at least 1"),
        ("scale", ["--pools", "0"], "--pools and --vms must be at least 1"),
        ("scale", ["--only", "change"], "--only must begin with make"),
        ("scale", ["--only", "nothing"], "--only: nothing"),
    ],
)
def test_invalid_options_are_refused_before_anything_starts(
    name: str, options: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"tests.bench.{name}"
    monkeypatch.setattr(sys, "argv", [module, *options])
    monkeypatch.delitem(sys.modules, module, raising=False)  # `run_module` warns of a module that is imported already
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module(module, run_name="__main__")
    assert problem in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused_with_the_known_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "pool" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"tests.bench.{name}").__doc__


def test_the_page_lists_every_benchmark() -> None:
    page = (results.ROOT / "tests" / "bench" / "README.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []
