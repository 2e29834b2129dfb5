"""Reads the docstrings under the fields of models from their source.

pydantic would read them while it makes each class, which takes half of the time of the import of the kinds. Only the
schemas of CRDs and of the documentation show them.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def field_docs(model: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of the model's fields, inherited ones included. A field that a subclass declares again has the
    docstring of the subclass."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        declared = inspect.get_annotations(base)
        written = _classes(base.__module__).get(base.__qualname__, {}) if declared else {}
        found = {name: text for name, text in found.items() if name not in declared} | written
    return {name: text for name, text in found.items() if name in model.model_fields}


@cache
def _classes(module: str) -> dict[str, dict[str, str]]:
    """The docstrings under the annotated names of each class at the top of a module."""
    source = sys.modules.get(module)
    try:
        body = ast.parse(inspect.getsource(source)).body if source else []
    except (OSError, TypeError):
        return {}
    return {each.name: _docstrings(each.body) for each in body if isinstance(each, ast.ClassDef)}


def _docstrings(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = inspect.cleandoc(text.value.value)
    return found
