"""Descriptions of the fields of pydantic models, from the docstrings under the fields.

Only schemas need the descriptions. Pydantic's `use_attribute_docstrings` reads the source of each model when its class
is created, which is a third of the time in which the kinds are imported.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from poolhouse.api.apimachinery.unstructured import Json


class DocumentedModel(BaseModel):
    """Base of models whose JSON schemas have the docstrings under the fields as descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in field_docs(cls).items():
            alias = cls.model_fields[name].alias
            found = properties[name if alias is None or alias not in properties else alias]
            found.setdefault("description", description)
        return schema


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings under the fields of a model, by the names of the fields."""
    bases = (base for base in reversed(model.__mro__) if issubclass(base, DocumentedModel) and base != DocumentedModel)
    found = [_docs_of_module(base.__module__).get(base.__qualname__, {}) for base in bases]
    return {name: text for docs in found for name, text in docs.items() if name in model.model_fields}


@cache
def _docs_of_module(module: str) -> dict[str, dict[str, str]]:
    return dict(_docs_of_classes(ast.parse(inspect.getsource(sys.modules[module])), ""))


def _docs_of_classes(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, dict(_docs_of_fields(node))
            yield from _docs_of_classes(node, f"{prefix}{node.name}.")


def _docs_of_fields(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, inspect.cleandoc(docstring)
