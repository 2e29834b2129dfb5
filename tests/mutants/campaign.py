"""Runs mutants of one target in the order of a seed, until a time has come."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.mutants.mutants import Candidate, Mutant, candidates
from tests.mutants.processes import MYPY, MYPY_CACHE, SURVIVED, check_types, in_a_process
from tests.mutants.reasons import REASONS
from tests.mutants.targets import Target

if TYPE_CHECKING:
    from tests.mutants.session import Session

EQUIVALENT = "equivalent"
"""outcome of a mutant that reasons.py lists; its tests are not run"""
CPU_SECONDS, START_CPU_SECONDS, FACTOR = 10.0, 20.0, 2.0
"""The tests of a mutant may take CPU_SECONDS of processor time more than FACTOR times all tests, and a new process
START_CPU_SECONDS for its imports."""
BASELINE_CPU_SECONDS, SECONDS = 600.0, 900.0
"""limit for a mutant that waits"""


@dataclass(frozen=True)
class Result:
    path: str
    outcome: str
    diff: str = ""


def copy_of(root: Path, folder: Path) -> None:
    """What git knows below `root`, with changes that are not committed, and mypy's cache. The mutants are written
    there."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    if (root / MYPY_CACHE).is_dir():
        shutil.copytree(root / MYPY_CACHE, folder / MYPY_CACHE)


class Campaign:
    def __init__(self, target: Target, root: Path, copy: Path, cpu_seconds: float = CPU_SECONDS) -> None:
        """`copy` is a copy of `root`, in which nobody else writes meanwhile."""
        self.target, self._root, self._copy, self._cpu_seconds = target, root, copy, cpu_seconds
        self._written = time.time_ns()
        self.found: list[Candidate] = [each for path in target.files(root) for each in candidates(root, path)]

    def run(
        self, seed: str, deadline: float, report: Callable[[Result], None], log: Path, share: slice = slice(None)
    ) -> int:
        """Exits with pytest's code. Call it in a process of its own, which has not imported what is mutated."""
        import pytest

        from tests.mutants.session import Session

        order = [*self.found]
        Random(f"{seed} {self.target.name}").shuffle(order)

        def work(session: Session) -> None:
            for candidate in order[share]:
                if time.monotonic() >= deadline:
                    return
                mutant = candidate.mutant()
                if mutant is not None:
                    report(self._result(session, mutant))

        self._typed = check_types(self._copy, self.target.files(self._root))
        os.chdir(self._root)
        with log.open("w") as output, redirect_stdout(output), redirect_stderr(output):
            options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=no"]
            plugin = Session(self._root, self.target.files(self._root), work, (BASELINE_CPU_SECONDS, SECONDS))
            return pytest.main([*options, *self.target.tests], plugins=[plugin])

    def _result(self, session: Session, mutant: Mutant) -> Result:
        if mutant.key in REASONS:
            return Result(mutant.path, EQUIVALENT)
        cpu_seconds = self._cpu_seconds + FACTOR * session.seconds
        outcome = session.outcome(mutant, cpu_seconds, SECONDS)
        if outcome is None:
            outcome = self._in_the_copy(mutant, [self.target.first, self.target.tests], cpu_seconds)
        elif outcome == SURVIVED:
            calling = dict.fromkeys(item.nodeid.split("::")[0] for item in session.calling(mutant))
            outcome = self._in_the_copy(mutant, [calling], cpu_seconds)
        return Result(mutant.path, outcome, mutant.diff() if outcome == SURVIVED else "")

    def _in_the_copy(self, mutant: Mutant, rounds: Iterable[Iterable[str]], cpu_seconds: float) -> str:
        path, outcome = self._copy / mutant.path, SURVIVED
        original = path.read_text()
        try:
            self._write(path, mutant.source)
            if self._typed and not check_types(self._copy, [mutant.path]):
                return MYPY
            for tests in filter(None, rounds):
                outcome = in_a_process(self._copy, tests, cpu_seconds + START_CPU_SECONDS, SECONDS)
                if outcome != SURVIVED:
                    break
            return outcome
        finally:
            self._write(path, original)

    def _write(self, path: Path, source: str) -> None:
        """With a time of its own to the second, by which Python knows that the bytecode is of another source."""
        path.write_text(source)
        self._written += 1_000_000_000
        os.utime(path, ns=(self._written, self._written))
