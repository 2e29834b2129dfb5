"""Tests that are collected once. For each mutant of a function, a fork replaces the function and runs the tests that
call it. This takes a tenth of the time of a new process.

A mutant that a fork notices is noticed. One that survives may not have run: a generator or a value was made when the
tests were collected. So its tests run again in a new process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutants.mutants import Mutant
from tests.mutants.processes import SURVIVED, in_a_fork

Calls = dict[tuple[str, str], list[int]]
"""the numbers of the tests that call a function, the shortest first, by its file and its qualified name"""


class TestsFailed(Exception):
    """They fail without a mutant too."""


class Session:
    """A plugin of pytest, which gives itself to `work` instead of running the tests once."""

    def __init__(
        self, root: Path, files: list[str], work: Callable[[Session], None], limits: tuple[float, float]
    ) -> None:
        self._paths = {str(root / path): path for path in files}
        self._work, self._limits = work, limits
        self._calls: Calls = defaultdict(list)
        self.seconds = 0.0
        """processor time of all tests"""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        if session.testsfailed:
            raise TestsFailed("tests cannot be collected")
        with tempfile.NamedTemporaryFile("w+") as file:
            # In a fork, so that what tests cache is not there for the mutants.
            if in_a_fork(lambda: self._record(Path(file.name)), *self._limits) != SURVIVED:
                raise TestsFailed("tests fail without a mutant")
            self.seconds, calls = json.load(file)
        for path, function, numbers in calls:
            self._calls[path, function] = numbers
        self._work(self)
        return True

    def _record(self, file: Path) -> bool:
        times = [time.process_time()]
        for number, item in enumerate(self._session.items):
            with self._recorded(number):
                self._run(item, self._session.items[number + 1 : number + 2])
            times.append(time.process_time())
        # Most mutants are noticed by many tests, so the shortest one comes first.
        calls = [
            (path, function, sorted(numbers, key=lambda number: times[number + 1] - times[number]))
            for (path, function), numbers in self._calls.items()
        ]
        file.write_text(json.dumps([times[-1] - times[0], calls]))
        return not self._session.testsfailed

    def _run(self, item: pytest.Item, following: list[pytest.Item]) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following[0] if following else None)

    def calling(self, mutant: Mutant) -> list[pytest.Item]:
        return [self._session.items[number] for number in self._calls.get((mutant.path, mutant.function), ())]

    def outcome(self, mutant: Mutant, cpu_seconds: float, seconds: float) -> str | None:
        """None if a fork cannot tell: no test calls the function, or the mutant is in code of the module."""
        items = self.calling(mutant)
        original = _function(vars(sys.modules[_module_name(mutant.path)]), mutant.function) if items else None
        if original is None:
            return None
        return in_a_fork(lambda: self._passes(mutant, original, items), cpu_seconds, seconds)

    def _passes(self, mutant: Mutant, original: FunctionType, items: list[pytest.Item]) -> bool:
        name = _module_name(mutant.path)
        loaded = sys.modules[name]
        namespace = {"__name__": name, "__package__": loaded.__package__, "__file__": loaded.__file__}
        exec(compile(mutant.source, mutant.path, "exec"), namespace)
        mutated = _function(namespace, mutant.function)
        assert mutated is not None
        original.__code__ = mutated.__code__
        original.__defaults__, original.__kwdefaults__ = _defaults(original, mutated)
        for number, item in enumerate(items):
            self._run(item, items[number + 1 : number + 2])
            if self._session.testsfailed:
                return False
        return True

    @contextmanager
    def _recorded(self, number: int) -> Iterator[None]:
        seen: set[CodeType] = set()

        def called(frame: FrameType, _event: str, _: Any) -> None:
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                path = self._paths.get(code.co_filename)
                if path is not None:
                    self._calls[path, code.co_qualname].append(number)

        sys.settrace(called)
        try:
            yield
        finally:
            sys.settrace(None)


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _function(namespace: dict[str, Any], name: str) -> FunctionType | None:
    found: Any = namespace
    for part in name.split("."):
        found = (found if isinstance(found, dict) else vars(found)).get(part)
    found = getattr(found, "__func__", found)  # of a static method or a class method
    return found if isinstance(found, FunctionType) else None


def _defaults(original: FunctionType, mutated: FunctionType) -> tuple[Any, Any]:
    """Those of the mutant, but the same objects where they are not mutated: an enum has other members there."""

    def kept(old: Any, new: Any) -> Any:
        return old if repr(old) == repr(new) else new

    positional = tuple(map(kept, original.__defaults__ or (), mutated.__defaults__ or ()))
    old = original.__kwdefaults__ or {}
    named = {key: kept(old.get(key), new) for key, new in (mutated.__kwdefaults__ or {}).items()}
    return positional or None, named or None
