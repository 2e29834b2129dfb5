"""Runs benchmarks, and compares their results with those of the last release.

python -m bench [NAME [OPTION]...]   runs one benchmark, or all; `python -m bench pool --help` shows its options
python -m bench compare [VERSION]    compares the last runs on this machine with a release
python -m bench keep VERSION         stores the last runs as the results of a release
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import results

NO_BENCHMARKS = ("__init__", "__main__", "fake_kubevirt", "harness", "results")
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_BENCHMARKS)
ROW = "{:12} {:78} {:>10} {:>10} {:>7}"


def run(name: str, options: list[str]) -> bool:
    """Runs a benchmark in a process of its own, and writes its result. Returns whether it ran to its end."""
    print(f"== {name}", flush=True)
    load = os.getloadavg()[0]
    with tempfile.NamedTemporaryFile(prefix="bench-") as rows:
        environment = {**os.environ, results.ROWS: rows.name}
        command = [sys.executable, "-m", f"bench.{name}", *options]
        code = subprocess.run(command, check=False, env=environment).returncode
        if Path(rows.name).stat().st_size:
            print(f"  written to {results.save(name, options, Path(rows.name), load, complete=code == 0)}")
    return code == 0


def compare(version: str | None) -> None:
    release, before = results.release(version)
    print(ROW.format("benchmark", "figure", release, "now", "change"))
    for name, figure, old, new in results.compare(before, results.last()):
        change = f"{new / old - 1:+.0%}" if old else ""
        print(ROW.format(name, figure, f"{old:.2f}", f"{new:.2f}", change))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["-h" | "--help"]:
            print(f"{__doc__}\nbenchmarks: {', '.join(NAMES)}")
        case ["compare", *version] if len(version) < 2:
            compare(version[0] if version else None)
        case ["keep", version]:
            print(f"written to {results.keep(version)}")
        case [name, *options] if name in NAMES:
            sys.exit(not run(name, options))
        case []:
            failed = [name for name in NAMES if not run(name, [])]
            sys.exit(f"not complete: {', '.join(failed)}" if failed else 0)
        case _:
            sys.exit(f"there is no benchmark {arguments[0]!r}; there are: {', '.join(NAMES)}")


if __name__ == "__main__":
    main(sys.argv[1:])
