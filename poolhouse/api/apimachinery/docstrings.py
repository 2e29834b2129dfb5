"""Docstrings of attributes, which Python does not keep: the texts of fields in schemas."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise


def docstrings_of(cls: type) -> Mapping[str, str]:
    """The docstrings of annotated attributes of the class's own body. Empty where there is no source."""
    return _docstrings(cls.__module__).get(cls.__qualname__, {})


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """The docstrings of all attributes, by the qualified name of the class."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_attributes(body)) for name, body in _classes(tree.body, "")}


def _classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    for each in body:
        match each:
            case ast.ClassDef():
                yield prefix + each.name, each.body
                yield from _classes(each.body, f"{prefix}{each.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _classes(each.body, f"{prefix}{each.name}.<locals>.")


def _attributes(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for declared, after in pairwise(body):
        match declared, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
