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
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.mutants.campaign import EQUIVALENT, Campaign, Result, copy_of
from tests.mutants.processes import KILLED, MYPY, SURVIVED, TIMED_OUT
from tests.mutants.targets import ROOT, TARGETS, Target

LEAST_PERCENT = 90
OUTCOMES = (KILLED, TIMED_OUT, MYPY, SURVIVED, EQUIVALENT)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="longest time; default: 20")
    parser.add_argument("--seed", help="order of the mutants; default: a new one, which is printed")
    parser.add_argument("--only", nargs="*", default=[], metavar="TARGET", help="run only these targets")
    parser.add_argument("--file", help="run only the mutants of this file")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the mutants; default: 1")
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
        for number, target in enumerate(chosen):
            campaigns = [Campaign(target, ROOT, _copied(Path(folder, str(each)))) for each in range(options.workers)]
            share = (end - time.monotonic()) / (len(chosen) - number)
            results = run(campaigns, seed, time.monotonic() + share, Path(folder))
            lines += table(campaigns[0], results)
            failed = failed or percent(results) < LEAST_PERCENT
    print(*lines, sep="\n")
    return int(failed)


def _copied(folder: Path) -> Path:
    if not folder.exists():
        copy_of(ROOT, folder)
    return folder


def run(campaigns: list[Campaign], seed: str, deadline: float, folder: Path) -> list[Result]:
    """Shares the mutants between the campaigns, each in a process, and shows each survivor at once."""
    fork, processes, results = multiprocessing.get_context("fork"), dict[Connection, tuple[BaseProcess, Path]](), []
    for place, campaign in enumerate(campaigns):
        receiving, sending = multiprocessing.Pipe(duplex=False)
        log, share = folder / f"log-{place}", slice(place, None, len(campaigns))
        process: BaseProcess = fork.Process(target=_work, args=(campaign, seed, deadline, log, share, sending))
        process.start()
        sending.close()
        processes[receiving] = process, log
    reporting = [*processes]
    while reporting:
        for each in wait(reporting):
            assert isinstance(each, Connection)
            try:
                result: Result = each.recv()
            except EOFError:
                reporting.remove(each)
                continue
            results.append(result)
            if result.outcome == SURVIVED:
                print(f"survived: {result.diff}", flush=True)
    for process, log in processes.values():
        process.join()
        if process.exitcode != 0:
            print(log.read_text()[-4000:])
            raise SystemExit(f"{campaigns[0].target.name}: the tests do not pass without a mutant")
    return results


def _work(campaign: Campaign, seed: str, deadline: float, log: Path, share: slice, sending: Connection) -> None:
    sys.exit(campaign.run(seed, deadline, sending.send, log, share))


def percent(results: Iterable[Result]) -> float:
    """A mutant whose tests do not end is noticed, too, and so is one that mypy refuses."""
    counts = Counter(each.outcome for each in results)
    noticed = counts[KILLED] + counts[TIMED_OUT] + counts[MYPY]
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
