"""No function and no module becomes too large to be read at once, and no module of pools knows too many others.

A branch is an `if`, a loop, a handler, a case, a comprehension, or a further operand of a boolean. Generated code is
not counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "poolhouse",
    "webhook",
    "defaulter",
    "controllers",
    "client",
    "agent",
    "tests/bench",
    "tests/fuzz",
    "tests/mutants",
)
GENERATED = {
    "client/poolhouse_client/models.py",
    "client/poolhouse_client/errors.py",
    "client/poolhouse_client/_sync.py",
    "client/poolhouse_client/_sync_claims.py",
    "client/poolhouse_client/_sync_objects.py",
}
MAX_BRANCHES, MAX_FUNCTION_LINES, MAX_MODULE_LINES = 15, 60, 400
MAX_NAMES = 20
"""names of our other modules that a module of `controllers/pool` imports"""
MORE_NAMES = {
    # The contents of the package: each action that a rule may want.
    "controllers/pool/actions/__init__.py": 31,
    # The parts list of the controller, which no other module imports.
    "controllers/pool/component.py": 26,
    # A reconcile from the observation to the status: each of its steps is in another module.
    "controllers/pool/controller.py": 25,
}
"""Modules with more names, each with its number. Lower the number when you take a name away, and raise none."""

BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
)


@cache
def modules() -> dict[str, str]:
    """The text of each module by its path."""
    paths = (str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: (ROOT / path).read_text() for path in paths if path not in GENERATED}


def functions(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not isinstance(child, ast.ClassDef):
                yield name + child.name, child
            yield from functions(child, f"{name}{child.name}.")


def branches(function: ast.AST) -> int:
    nodes = [*ast.walk(function)]
    operands = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return operands + sum(isinstance(node, BRANCHES) for node in nodes)


@cache
def large_functions() -> frozenset[str]:
    return frozenset(
        f"{path}:{name}"
        for path, text in modules().items()
        for name, function in functions(ast.parse(text))
        if branches(function) > MAX_BRANCHES or (function.end_lineno or 0) - function.lineno >= MAX_FUNCTION_LINES
    )


def test_no_function_is_large() -> None:
    assert large_functions() == set(), "divide it, for example into a table and what reads it"


def test_no_module_is_large() -> None:
    large = {path for path, text in modules().items() if text.count("\n") > MAX_MODULE_LINES}
    assert large == set(), "divide it by what changes together"


def imported_names(text: str) -> int:
    """How many names of our other modules a module imports."""
    ours = {folder.partition("/")[0] for folder in FOLDERS}
    found = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").partition(".")[0] in ours):
            found += len(node.names)
        elif isinstance(node, ast.Import):
            found += sum(alias.name.partition(".")[0] in ours for alias in node.names)
    return found


def with_many_names(texts: Mapping[str, str]) -> dict[str, int]:
    found = {path: imported_names(text) for path, text in texts.items() if path.startswith("controllers/pool/")}
    return {path: names for path, names in found.items() if names > MAX_NAMES}


def test_no_module_of_pools_knows_too_many_names() -> None:
    assert with_many_names(modules()) == MORE_NAMES, "divide it, or move what it does to the module whose data it reads"


def test_names_are_counted() -> None:
    text = """
import ast, controllers.pool.plan
from collections.abc import Iterator, Mapping
from poolhouse.api.kinds import meta, pool
from . import status
def f():
    from controllers.pool.plan import (
        plan as decided,
    )
"""
    assert imported_names(text) == 5
    many = "from controllers.pool import " + ", ".join(f"m{number}" for number in range(16))
    assert with_many_names({"controllers/pool/a.py": text + many}) == {"controllers/pool/a.py": 21}
    assert with_many_names({"controllers/pool/a.py": text, "controllers/claim/a.py": text + many}) == {}


def test_branches_are_counted() -> None:
    text = """
def f(a, b):
    if a and b or a:
        return [x for x in a if x]
    for x in a:
        try:
            g(x)
        except ValueError:
            match x:
                case 1: pass
                case _: pass
    return 1 if b else 2
"""
    assert branches(ast.parse(text)) == 9
