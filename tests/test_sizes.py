"""No function and no module becomes too large to be read at once.

A branch is an `if`, a loop, a handler, a case, a comprehension, or a further operand of a boolean. Generated code is
not counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
