"""Runs benchmarks, and compares their results with those of the last release.

python -m tests.bench [NAME [OPTION]...]   runs one benchmark, or all; `... pool --help` has its options
python -m tests.bench compare [VERSION]    compares the last runs on this machine with a release
python -m tests.bench keep VERSION         stores the last runs as the results of a release
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import results
from tests.bench.results import INTERRUPTED

TESTS = ("test_harness", "test_results")
NO_BENCHMARKS = ("__init__", "__main__", "admission_servers", "fake_kubevirt", "harness", "results", *TESTS)
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_BENCHMARKS)
ROW = "{:12} {:78} {:>10} {:>10} {:>7}"


def run(name: str, options: list[str]) -> int:
    """Runs a benchmark in a process of its own, and writes its result. Returns its exit code."""
    print(f"== {name}", flush=True)
    load = os.getloadavg()[0]
    with tempfile.NamedTemporaryFile(prefix="bench-") as rows:
        environment = {**os.environ, results.ROWS: rows.name}
        # In a session of its own, because Ctrl-C in a terminal would interrupt it twice, the second time in its end.
        command = [sys.executable, "-m", f"tests.bench.{name}", *options]
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        with _passed_on(process):
            code = process.wait()
        if Path(rows.name).stat().st_size:
            print(f"  written to {results.save(name, options, Path(rows.name), load, complete=code == 0)}")
    return code


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes the first signal to end on to the benchmark, which ends what it has started."""

    def pass_on(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        print("  ends what it has started ...", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGTERM)

    before = {each: signal.signal(each, pass_on) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def compare(version: str | None) -> None:
    release, before = results.release(version)
    now = results.last()
    print(ROW.format("benchmark", "figure", release, "now", "change"))
    for name, figure, old, new in results.compare(before, now):
        change = f"{new / old - 1:+.0%}" if old else ""
        print(ROW.format(name, figure, f"{old:.2f}", f"{new:.2f}", change))
    for name in NAMES:
        if notes := results.differences(before.get(name), now.get(name), release):
            print(f"{name}: {'; '.join(notes)}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["-h" | "--help"]:
            print(f"{__doc__}\nbenchmarks: {', '.join(NAMES)}")
        case ["compare", *version] if len(version) < 2:
            compare(version[0] if version else None)
        case ["keep", version]:
            print(f"written to {results.keep(version, NAMES)}")
        case [name, *options] if name in NAMES:
            sys.exit(run(name, options))
        case []:
            failed = []
            for name in NAMES:
                code = run(name, [])
                if code == INTERRUPTED:
                    sys.exit(code)
                failed += [name] if code else []
            sys.exit(f"not complete: {', '.join(failed)}" if failed else 0)
        case _:
            print(f"there is no benchmark {arguments[0]!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
            sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
