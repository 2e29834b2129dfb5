"""Runs inputs against targets: each with a deadline of processor time, and guided by the lines that it reaches."""

import hashlib
import json
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Protocol

from tests.fuzz.mutations import mutate
from tests.fuzz.oracles import Finding, Finds

Json = dict[str, Any]

REPORT_SECONDS = 60
CPU_SECONDS = 3.0
"""The API server waits 3 s for the admission of a VM."""
TRACING_FACTOR = 10
"""an input that is traced may take so many times as long"""
MAX_INPUTS = 400
"""limit on the inputs of a target that are mutated further"""
CORPUS_INPUTS = 24
CORPUS_INPUT_BYTES = 2000
ROOMS = (
    *("poolhouse/api", "poolhouse/cli", "poolhouse/runtime", "poolhouse/service"),
    *("defaulter", "webhook", "controllers"),
)
ROOT = Path(__file__).resolve().parent.parent.parent


class Target(Protocol):
    name: str
    share: int
    """relative number of inputs, so that each target gets about the same processor time"""

    def generate(self, random: Random) -> Json: ...

    def run(self, given: Json) -> None:
        """Handles an input. Raises `Finding`, or any other error of the code under test, which is a crash."""

    def repair(self, given: Json) -> Json | None:
        """A mutated input in the form that `run` takes; None if it has lost this form."""


class Hang(BaseException):
    """The processor time of an input is used up."""


@contextmanager
def cpu_deadline(seconds: float) -> Iterator[None]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Coverage:
    """Finds lines of our code that no input has reached before. A function without such lines is not traced."""

    def __init__(self) -> None:
        self._folders = tuple(f"{ROOT / room}/" for room in ROOMS)
        self._missing: dict[int, set[int]] = {}
        self._known: list[CodeType] = []  # keeps the ids in `_missing` unique
        self.reached = 0

    @contextmanager
    def trace(self) -> Iterator[None]:
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        missing = self._missing.get(id(code))
        if missing is None:
            ours = code.co_filename.startswith(self._folders)
            missing = {line for _, _, line in code.co_lines() if line} if ours else set()
            self._missing[id(code)] = missing
            self._known.append(code)
        return self._line if missing else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        missing = self._missing[id(frame.f_code)]
        if frame.f_lineno in missing:
            missing.discard(frame.f_lineno)
            self.reached += 1
        return self._line


@dataclass
class Figures:
    inputs: Counter[str] = field(default_factory=Counter)
    found: Counter[tuple[str, Finds]] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    """by target, the longest processor time of an input, in seconds"""


@dataclass
class Campaign:
    targets: list[Target]
    seed: str
    failures: Path
    """folder for a file of each input with a finding"""
    guided: float = 0.02
    """share of inputs whose lines are traced"""
    cpu_seconds: float = CPU_SECONDS
    figures: Figures = field(default_factory=Figures)
    coverage: Coverage = field(default_factory=Coverage)
    pools: dict[str, list[Json]] = field(default_factory=dict)
    """by target, inputs that have reached new lines"""
    _signatures: Counter[str] = field(default_factory=Counter)

    def run(self, *, inputs: int, seconds: float) -> None:
        began = reported = time.monotonic()
        for target in self.targets:
            for given in list(self.pools.get(target.name, ())):
                self.one(target, given, "the corpus", traced=True)
        choose = Random(self.seed)
        shares = [target.share for target in self.targets]
        number = 0
        while sum(self.figures.inputs.values()) < inputs and time.monotonic() - began < seconds:
            number += 1
            (target,) = choose.choices(self.targets, shares)
            seed = f"{self.seed}/{number}"
            random = Random(seed)
            given = self._next(target, random)
            self.one(target, given, seed, traced=random.random() < self.guided)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                print(f"{sum(self.figures.inputs.values())} inputs in {reported - began:.0f} s", flush=True)

    def _next(self, target: Target, random: Random) -> Json:
        pool = self.pools.get(target.name)
        if pool and random.random() < 0.4:
            repaired = target.repair(mutate(random, random.choice(pool), pool))
            if repaired is not None:
                return repaired
        return target.generate(random)

    def one(self, target: Target, given: Json, seed: str, *, traced: bool) -> Finding | None:
        """Runs one input, and counts and stores its finding."""
        self.figures.inputs[target.name] += 1
        before, began = self.coverage.reached, time.process_time()
        if traced:
            with self.coverage.trace():
                finding = attempt(target, given, self.cpu_seconds * TRACING_FACTOR)
        else:
            finding = attempt(target, given, self.cpu_seconds)
            spent = time.process_time() - began
            self.figures.slowest[target.name] = max(spent, self.figures.slowest.get(target.name, 0))
        if self.coverage.reached > before:
            pool = self.pools.setdefault(target.name, [])
            pool.append(given)
            if len(pool) > MAX_INPUTS:
                pool.pop(Random(seed).randrange(len(pool)))
        if finding is not None:
            self.figures.found[target.name, finding.kind] += 1
            self._store(target, given, seed, finding)
        return finding

    def _store(self, target: Target, given: Json, seed: str, finding: Finding) -> None:
        signature = f"{target.name} {finding.kind} {''.join(c for c in finding.message if not c.isdigit())[-160:]}"
        self._signatures[signature] += 1
        if self._signatures[signature] > 3:
            return
        self.failures.mkdir(parents=True, exist_ok=True)
        content = {"target": target.name, "seed": seed, "finding": str(finding), "input": given}
        name = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:12]
        path = self.failures / f"{target.name}-{name}.json"
        path.write_text(json.dumps(content, indent=1))
        print(f"{path}: seed {seed}: {finding}"[:600], flush=True)


def attempt(target: Target, given: Json, cpu_seconds: float = CPU_SECONDS) -> Finding | None:
    try:
        with cpu_deadline(cpu_seconds):
            target.run(given)
    except Hang:
        where = traceback.format_exc().splitlines()[-7:-1]
        return Finding("hang", f"more than {cpu_seconds:g} s of processor time: {' '.join(where)}")
    except Finding as finding:
        return finding
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Finding("crash", f"{type(error).__name__}: {str(error)[:200]} at {last.filename}:{last.lineno}")
    return None


def smallest_cover(target: Target, pool: list[Json]) -> list[Json]:
    """The small inputs of a pool that together reach the most lines."""
    coverage, kept = Coverage(), []
    small = [each for each in pool if len(json.dumps(each)) <= CORPUS_INPUT_BYTES]
    for given in sorted(small, key=lambda each: len(json.dumps(each))):
        before = coverage.reached
        with coverage.trace():
            finding = attempt(target, given, CPU_SECONDS * TRACING_FACTOR)
        if finding is None and coverage.reached > before:
            kept.append((coverage.reached - before, given))
    kept.sort(key=lambda each: -each[0])
    return [given for _, given in kept[:CORPUS_INPUTS]]
