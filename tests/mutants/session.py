"""Tests that are collected once. For each mutant of a function, a fork replaces the function and runs the tests that
call it. This takes a tenth of the time of a new process.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import pytest

from tests.mutants.mutants import Mutant
from tests.mutants.processes import in_a_fork

Calls = dict[tuple[str, str], list[int]]
"""the numbers of the tests that call a function, by its file and its qualified name"""


class TestsFailed(Exception):
    """They fail without a mutant too."""


class Session:
    """A plugin of pytest, which gives itself to `work` instead of running the tests once."""

    def __init__(self, root: Path, files: list[str], work: Callable[[Session], None]) -> None:
        self._paths = {str(root / path): path for path in files}
        self._work = work
        self._calls: Calls = defaultdict(list)
        self.seconds = 0.0
        """processor time of all tests"""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        if session.testsfailed:
            raise TestsFailed("tests cannot be collected")
        began = time.process_time()
        for number, item in enumerate(session.items):
            with self._recorded(number):
                following = session.items[number + 1] if number + 1 < len(session.items) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self.seconds = time.process_time() - began
        if session.testsfailed:
            raise TestsFailed("tests fail without a mutant")
        forget()
        self._work(self)
        return True

    def outcome(self, mutant: Mutant, cpu_seconds: float, seconds: float) -> str | None:
        """None if a fork cannot tell: no test calls the function, or the mutant is in code of the module."""
        items = [self._session.items[number] for number in self._calls.get((mutant.path, mutant.function), ())]
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
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
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


def forget() -> None:
    """Empties what the tests have cached, which a mutant would not compute again."""
    gc.unfreeze()
    for each in gc.get_objects():
        if type(each) is _CACHED:
            each.cache_clear()
        elif (names := _cached_properties(cast(Hashable, type(each)))) and isinstance(
            values := getattr(each, "__dict__", None), dict
        ):
            for name in names:
                values.pop(name, None)
    gc.freeze()


_CACHED = type(lru_cache(lambda: None))


@cache
def _cached_properties(kind: Hashable) -> frozenset[str]:
    assert isinstance(kind, type)
    members = [item for base in kind.__mro__ for item in base.__dict__.items()]
    return frozenset(name for name, member in members if isinstance(member, cached_property))


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
