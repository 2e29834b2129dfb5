"""Results of benchmarks as JSON, and their comparison with those of the last release.

`python -m tests.bench NAME` writes `.bench/NAME.json`, or `.bench/NAME.incomplete.json` if it failed.
`tests/bench/releases/VERSION.json` has the results of a release, by benchmark. The names of figures end with their
units: `_ms`, `_s` and `_per_second` depend on the machine, and are compared only with results of the same machine;
ratios, counts and `_mb` are compared always.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent.parent
LAST = ROOT / ".bench"
"""results of the last runs on this machine, which git ignores"""
RELEASES = ROOT / "tests" / "bench" / "releases"
ROWS = "POOLHOUSE_BENCH_ROWS"
"""the environment variable with the file to which each report is appended"""
INCOMPLETE = ".incomplete.json"
OF_THE_MACHINE = ("_ms", "_s", "_per_second")
INTERRUPTED = 130
"""exit code of a benchmark that was interrupted"""


def append(section: str, what: str, measured: str, figures: dict[str, float]) -> None:
    """Appends a line of the table, unless the benchmark was started without `python -m tests.bench`."""
    if rows := os.environ.get(ROWS):
        row = {"section": section, "what": what, "measured": measured, "figures": figures}
        with Path(rows).open("a") as file:
            file.write(json.dumps(row) + "\n")


def machine() -> Json:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": next(_values("/proc/cpuinfo", "model name"), platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def save(name: str, options: list[str], rows: Path, load: float, complete: bool, to: Path = LAST) -> Path:
    """Writes the result of a run. `load` is the load average of the machine before the run."""
    result = {
        "benchmark": name,
        "options": options,
        "complete": complete,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        "load": load,
        "rows": [json.loads(line) for line in rows.read_text().splitlines()],
    }
    to.mkdir(exist_ok=True)
    incomplete, path = to / f"{name}{INCOMPLETE}", to / f"{name}.json"
    incomplete.unlink(missing_ok=True)
    path = path if complete else incomplete
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def last(runs: Path = LAST) -> dict[str, Json]:
    """Returns the results of the last complete runs, by benchmark."""
    paths = [path for path in sorted(runs.glob("*.json")) if not path.name.endswith(INCOMPLETE)]
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> Json:
    try:
        found: Json = json.loads(path.read_text())
    except ValueError as error:
        raise SystemExit(f"{path} is not JSON ({error}): delete it, and run the benchmark again") from None
    return found


def keep(version: str, names: Iterable[str], runs: Path = LAST, releases: Path = RELEASES) -> Path:
    """Stores the results of the last runs as those of a release. Exits if one of these benchmarks has no result."""
    found = last(runs)
    if missing := [name for name in names if name not in found or (runs / f"{name}{INCOMPLETE}").exists()]:
        raise SystemExit(f"run these first with `make bench BENCH=NAME`: {', '.join(missing)}")
    releases.mkdir(exist_ok=True)
    path = releases / f"{version}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def release(version: str | None = None, releases: Path = RELEASES) -> tuple[str, dict[str, Json]]:
    """Returns a release and its results; the default is the newest release."""
    versions = sorted((path.stem for path in releases.glob("*.json")), key=Version)
    if not versions or (version and version not in versions):
        raise SystemExit(f"{releases} has no results of {version or 'a release'}, only of: {', '.join(versions)}")
    version = version or versions[-1]
    return version, _read(releases / f"{version}.json")


def compare(before: dict[str, Json], now: dict[str, Json]) -> Iterator[tuple[str, str, float, float]]:
    """Yields benchmark, figure, and both values of each figure that both have and that can be compared."""
    for name in before.keys() & now.keys():
        same = before[name]["machine"] == now[name]["machine"]
        old, new = (_figures(results[name]) for results in (before, now))
        for key in old:
            if key in new and (same or not key.endswith(OF_THE_MACHINE)):
                yield name, key, old[key], new[key]


def differences(before: Json | None, now: Json | None, release: str) -> list[str]:
    """Returns why figures of a benchmark are missing in the comparison, or hard to compare."""
    if before is None or now is None:
        return [f"no result in {release}" if now is not None else "no result on this machine"]
    notes = []
    if before["machine"] != now["machine"]:
        notes.append("another machine, so times and rates are left out")
    if before["options"] != now["options"]:
        options, others = (" ".join(each["options"]) or "none" for each in (now, before))
        notes.append(f"other options: {options}, and in {release}: {others}")
    if now["load"] > now["machine"]["cores"] / 2:
        notes.append(f"the machine was busy: load {now['load']:.1f}")
    return notes


def _figures(result: Json) -> dict[str, float]:
    return {
        ": ".join(filter(None, (row["section"], row["what"], figure))): value
        for row in result["rows"]
        for figure, value in row["figures"].items()
    }


def _values(file: str, name: str) -> Iterator[str]:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            yield value.strip()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True).stdout.strip()
