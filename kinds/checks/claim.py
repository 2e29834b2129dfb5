"""What is wrong with a claim though its schema is right, and what of it may not change."""

from __future__ import annotations

from collections.abc import Iterator

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at
from kinds.checks.metadata import effective_name, label_problems
from kinds.meta import DOMAIN, IMAGE_ID, INSTANCE_TYPE
from kinds.model import Rule
from kinds.validation import child_path, quoted

LONGEST_NAME = 63
FIXED = ("poolName", "overrides", "onEmpty", "bindTimeoutSeconds", "personalization")
NOTED = {INSTANCE_TYPE: "instancetype", IMAGE_ID: "image"}
_STAYS = "can't be changed: it says what was asked for; delete the claim and make another, or change ttlSeconds"
_NO_RETURN = "can't be taken back: the machine is being destroyed"


def _fixed(field: str) -> Rule:
    """Of two values, the old and the new one, so a value alone always keeps it; `changes` says the same in Python."""
    return Rule(
        cel=f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        message=_STAYS,
        holds=lambda value: True,
        field=f".{field}",
    )


RULES = (
    *(_fixed(field) for field in FIXED),
    Rule(
        cel="!(has(oldSelf.release) && oldSelf.release) || (has(self.release) && self.release)",
        message=_NO_RETURN,
        holds=lambda value: True,
        field=".release",
    ),
)


def update_problems(before: Json, after: Json) -> Iterator[Problem]:
    """What may not become of a claim that is there."""
    for field in FIXED:
        if at(before, "spec", field) != at(after, "spec", field):
            yield Problem(f"spec.{field}", _STAYS)
    if at(before, "spec", "release") is True and at(after, "spec", "release") is not True:
        yield Problem("spec.release", _NO_RETURN)
    for annotation in NOTED:
        # One that goes has had its effect.
        was, wanted = (at(each, "metadata", "annotations", annotation) for each in (before, after))
        if wanted is not None and was != wanted:
            yield Problem(child_path("metadata.annotations", annotation), _STAYS)


def with_annotation_overrides(document: Json) -> Json:
    """A right claim in which the annotations have become the fields that they stand for, where those say nothing."""
    given = at(document, "spec", "overrides")
    overrides = given if isinstance(given, dict) else {}
    for annotation, field in NOTED.items():
        value = at(document, "metadata", "annotations", annotation)
        if isinstance(value, str) and value and overrides.get(field) is None:
            overrides = {**overrides, field: value}
    if not overrides:
        return document
    return {**document, "spec": {**document["spec"], "overrides": overrides}}


def _name_fits(document: object) -> bool:
    name = effective_name(document)
    return name is None or len(name) <= LONGEST_NAME


NAME_IS_A_LABEL = Rule(
    cel=f"self.metadata.name.size() <= {LONGEST_NAME}",
    message=f"a machine made for the claim is called after it: at most {LONGEST_NAME} characters",
    holds=_name_fits,
    field=".metadata.name",
)


def wishes(document: Json) -> Iterator[Problem]:
    path = "spec.personalization.labels"
    given = at(document, "spec", "personalization", "labels")
    yield from label_problems(given, path)
    for key in given if isinstance(given, dict) else ():
        if isinstance(key, str) and (key.partition("/")[0].endswith(("kubevirt.io", DOMAIN)) and "/" in key):
            yield Problem(
                child_path(path, key), "is not a claim's to give: leave out labels of kubevirt.io and Poolhouse"
            )


def empty_annotations(document: Json) -> Iterator[Problem]:
    for annotation in NOTED:
        value = at(document, "metadata", "annotations", annotation)
        if value == "":
            path = child_path("metadata.annotations", annotation)
            yield Problem(path, f"is {quoted(value)}; name what is wanted, or leave the annotation out")


CHECKS = (wishes, empty_annotations)
