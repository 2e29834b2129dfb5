"""`python -m tests.mutants`: changes pure code in one place at a time, and shows which changes no test notices."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from tests.mutants.campaign import EQUIVALENT, Campaign, Result, copy_of
from tests.mutants.processes import KILLED, SURVIVED, TIMED_OUT
from tests.mutants.targets import ROOT, TARGETS, Target

LEAST_PERCENT = 90
OUTCOMES = (KILLED, TIMED_OUT, SURVIVED, EQUIVALENT)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="longest time; default: 20")
    parser.add_argument("--seed", help="order of the mutants; default: a new one, which is printed")
    parser.add_argument("--only", nargs="*", default=[], metavar="TARGET", help="run only these targets")
    parser.add_argument("--file", help="run only the mutants of this file")
    options = parser.parse_args()
    seed = options.seed or secrets.token_hex(4)
    chosen = [each for each in TARGETS if not options.only or each.name in options.only]
    if options.file:
        chosen = [Target(each.name, (options.file,), each.tests) for each in chosen if options.file in each.files()]
    if not chosen:
        parser.error(f"no such target; there are: {', '.join(each.name for each in TARGETS)}")
    print(f"seed {seed}, targets {', '.join(each.name for each in chosen)}", flush=True)
    end = time.monotonic() + options.minutes * 60
    failed = False
    lines = [f"{'':<52} {'mutants':>8} {'run':>6}" + "".join(f" {name:>10}" for name in OUTCOMES) + "   killed"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "copy")
        copy_of(ROOT, copy)
        for number, target in enumerate(chosen):
            campaign = Campaign(target, ROOT, copy)
            share = (end - time.monotonic()) / (len(chosen) - number)
            results = run(campaign, seed, time.monotonic() + share, Path(folder, "log"))
            lines += table(campaign, results)
            failed = failed or percent(results) < LEAST_PERCENT
    print(*lines, sep="\n")
    return int(failed)


def run(campaign: Campaign, seed: str, deadline: float, log: Path) -> list[Result]:
    """Shows each survivor at once."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_work, args=(campaign, seed, deadline, log, sending))
    process.start()
    sending.close()
    results = []
    while True:
        try:
            result: Result = receiving.recv()
        except EOFError:
            break
        results.append(result)
        if result.outcome == SURVIVED:
            print(f"survived: {result.diff}", flush=True)
    process.join()
    if process.exitcode != 0:
        print(log.read_text()[-4000:])
        raise SystemExit(f"{campaign.target.name}: the tests do not pass without a mutant")
    return results


def _work(campaign: Campaign, seed: str, deadline: float, log: Path, sending: Connection) -> None:
    sys.exit(campaign.run(seed, deadline, sending.send, log))


def percent(results: Iterable[Result]) -> float:
    """A mutant whose tests do not end is noticed, too."""
    counts = Counter(each.outcome for each in results)
    noticed = counts[KILLED] + counts[TIMED_OUT]
    return 100 * noticed / max(1, noticed + counts[SURVIVED])


def table(campaign: Campaign, results: list[Result]) -> list[str]:
    made = Counter(each.path for each in campaign.found)
    rows = [_row(path, made[path], [each for each in results if each.path == path]) for path in made]
    return [*rows, _row(campaign.target.name.upper(), made.total(), results)]


def _row(name: str, made: int, results: list[Result]) -> str:
    counts = Counter(each.outcome for each in results)
    shown = "".join(f" {counts[outcome]:>10}" for outcome in OUTCOMES)
    return f"{name:<52} {made:>8} {len(results):>6}{shown} {percent(results) if results else 0:>6.1f} %"


if __name__ == "__main__":
    sys.exit(main())
