"""Base classes and types for the fields of kinds.

The CRD takes description, bounds and default of a field from its docstring and type. A `Rule` concerns several fields.
It has CEL for the API server, and Python for the webhook, which reports every problem at once.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from poolhouse.api.apimachinery.docstrings import docstrings_of
from poolhouse.api.apimachinery.quantity import DECIMAL
from poolhouse.api.apimachinery.unstructured import Json

VALIDATE_TEMPLATES = {"validate": "templates"}
"""context for pydantic that includes VM templates in the validation"""


@dataclass(frozen=True)
class Rule:
    """A CEL validation rule. `holds` must not raise for a value of the right type, even if fields are missing."""

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    """path of the reported field, such as `.spec.replicas`; empty for the value itself"""
    told: tuple[str, Callable[[Any], str]] | None = None
    """a CEL expression and a function that say the message with values of the object"""

    def message_for(self, value: Any) -> str:
        """The message about a value for which the rule does not hold."""
        return self.told[1](value) if self.told is not None else self.message


class Model(BaseModel):
    """Base of models. Controllers ignore undeclared fields; the API server and the webhook deny them."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        strict=True,
        extra="ignore",
        defer_build=True,  # a process needs few of the models, and building all of them takes a third of the import
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    hints: ClassVar[Mapping[str, str]] = {}
    """by unknown field, the name of the field that the user may mean, or advice"""

    def json(self) -> Json:  # type: ignore[override]
        """The value as JSON, without empty fields."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        schema = handler(core_schema)
        target = handler.resolve_ref_schema(schema)
        for name, text in docstrings_of_fields(cls).items():
            target["properties"][cls.model_fields[name].alias or name].setdefault("description", text)
        if cls.rules:
            target["x-rules"] = cls.rules
        if cls.hints:
            target["x-hints"] = cls.hints
        return schema


def docstrings_of_fields(model: type[Model]) -> dict[str, str]:
    """The docstring of each field that has one. If several classes declare a field, that of the most derived one
    counts. Pydantic's option `use_attribute_docstrings` would read the sources of all models in each import, and only
    schemas have the docstrings."""
    declared: dict[str, str | None] = {}
    for parent in reversed(model.__mro__):
        texts = docstrings_of(parent) if issubclass(parent, Model) else {}
        declared |= {name: texts.get(name) for name in inspect.get_annotations(parent)}
    return {name: text for name, text in declared.items() if text is not None and name in model.model_fields}


class OpenModel(Model):
    """Base of models that keep undeclared fields, for KubeVirt's types, which get new fields."""

    model_config = ConfigDict(extra="allow")


class AtomicModel(Model):
    """Base of models whose values server-side apply replaces as a whole."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})


def no_more_than(field: str, most: str) -> Rule:
    """A number of the object is at most another one, which may be missing."""
    return Rule(
        cel=f"!has(self.{most}) || self.{field} <= self.{most}",
        message=f"must be at most {most}",
        holds=lambda value: not has(value, most) or (value.get(field) or 0) <= value[most],
        field=f".{field}",
        told=(
            # `format`, because the API server refuses `string(self.FIELD)`: it expects a text of any length from it.
            f"'must be at most %d ({most}), not %d'.format([self.{most}, self.{field}])",
            lambda value: f"must be at most {value[most]} ({most}), not {value[field]}",
        ),
    )


def has(value: Json, field: str) -> bool:
    """Whether a field is set, like CEL's `has(self.FIELD)`. Null counts as absent."""
    return value.get(field) is not None


def at_most_one_of(*fields: str, noun: str) -> Rule:
    """A rule that allows at most one of the fields."""
    count = " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields)
    names = ", ".join(fields[:-1]) + " or " + fields[-1]
    return Rule(
        cel=f"{count} <= 1",
        message=f"only one {noun} can be chosen: keep one of {names} and remove the others",
        holds=lambda value: sum(has(value, field) for field in fields) <= 1,
    )


def expected(words: str) -> Json:
    """Describes a valid value for messages about invalid ones."""
    return {"x-expected": words}


def set_at_creation() -> Json:
    """Leaves the default of a field out of the schema, because the webhook writes it at creation only. A default of the
    schema would also replace the stored value of an object whose manifest loses the field."""
    return {"x-set-at-creation": True}


FreeForm = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
"""an object with any fields"""


@dataclass(frozen=True)
class IntOrString:
    """Kubernetes' IntOrString: a number within bounds, or text that matches the pattern."""

    pattern: str
    expected: str
    minimum: int | None = None
    maximum: int | None = None
    max_length: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> int | str:
        if isinstance(value, str):
            # `$` would match before a line break at the end.
            valid = re.fullmatch(self.pattern[1:-1], value) and len(value) <= (self.max_length or len(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            valid = (-_INT64 if self.minimum is None else self.minimum) <= value <= (self.maximum or _INT64 - 1)
        else:
            valid = False
        if not valid:
            raise PydanticCustomError("int_or_string", "must be {expected}", {"expected": self.expected})
        return cast("int | str", value)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        bounds = {"minimum": self.minimum, "maximum": self.maximum, "maxLength": self.max_length}
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            **{name: bound for name, bound in bounds.items() if bound is not None},
            "pattern": self.pattern,
            **expected(self.expected),
        }


_INT64 = 2**63
Quantity = Annotated[
    int | str,
    IntOrString(
        rf"^(\+|-)?{DECIMAL}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{DECIMAL}))?$",
        'a quantity, such as "2Gi", "500M" or 128974848',
    ),
]
IntOrPercent = Annotated[
    int | str,
    IntOrString(
        "^(100|[1-9][0-9]?)%$",
        'a whole number of at least 1, or a percentage from "1%" to "100%"',
        minimum=1,
        maximum=2**31 - 1,
    ),
]


_T = TypeVar("_T")
Tuple = Annotated[tuple[_T, ...], Strict(False)]
"""a tuple that is a list in the document"""
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1, json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(ge=-_INT64, le=_INT64 - 1, json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})]
Seconds = Annotated[Count, Field(ge=1)]


def list_map(*keys: str) -> Json:
    """Schema of a list of type `map`, whose entries are identified by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC_LIST: Json = {"x-kubernetes-list-type": "atomic"}


@dataclass(frozen=True)
class SchemaOf:
    """Gives a dict the schema of a model. Admission validates the value with the model; controllers use the dict."""

    model: type[Model]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._validate, handler(source))

    def _validate(self, value: Json, info: ValidationInfo) -> Json:
        if info.context is VALIDATE_TEMPLATES:
            self.model.model_validate(value, extra="forbid", context=VALIDATE_TEMPLATES)
        return value

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {"x-model": self.model}


class Ruled:
    """Rules of one field. API servers let an object that is older than a rule be changed while the value that the rule
    is about stays: a rule of the whole spec would refuse each change of it. Controllers use an object that breaks a
    rule, as opposed to one that breaks a bound of its model."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return {**handler(core_schema), "x-rules": self._rules}
