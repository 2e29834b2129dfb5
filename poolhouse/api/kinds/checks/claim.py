"""Checks of a VirtualMachineClaim that its schema cannot express, and of its updates."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.checks.metadata import label_problems, name_rule
from poolhouse.api.kinds.meta import (
    DOMAIN,
    IMAGE_ID,
    INSTANCE_PROFILE,
    INSTANCE_TYPE,
    KEY_PAIR,
    POD_NAME,
    POD_UID,
    REQUESTER,
    SECURITY_GROUPS,
    SUBNET_ID,
)
from poolhouse.api.kinds.model import Rule
from poolhouse.api.kinds.validation import child_path, quoted

IMMUTABLE = ("poolName", "overrides", "onEmpty", "bindTimeoutSeconds", "personalization", "application")
_OWN_ANNOTATIONS = {
    INSTANCE_TYPE: "instancetype",
    IMAGE_ID: "image",
    SUBNET_ID: "placement",
    KEY_PAIR: "keyPair",
    SECURITY_GROUPS: "securityGroups",
    INSTANCE_PROFILE: "iamInstanceProfile",
}
VIRTUAL_KUBELET = "compute.amazonaws.com"
"""prefix of the annotations with which Pods of an AWS Virtual Kubelet choose their instance"""
OVERRIDE_ANNOTATIONS = {
    **_OWN_ANNOTATIONS,
    **{f"{VIRTUAL_KUBELET}/{key.removeprefix(f'{DOMAIN}/')}": field for key, field in _OWN_ANNOTATIONS.items()},
}
"""field of `spec.overrides` by annotation, those of Poolhouse first, which win; the values of `securityGroups` are
separated by commas"""
RECORDED_ANNOTATIONS = (REQUESTER, POD_NAME, POD_UID)
"""who made the claim, and the Pod for which the controllers made it"""
_IMMUTABLE_MESSAGE = "cannot be changed, only ttlSeconds, ttlSecondsAfterFinished and release can; create another claim"
_RELEASE_MESSAGE = "cannot be set back: the VM is being deleted"


def _immutable(field: str) -> Rule:
    """A transition rule for the API server. The webhook uses `update_problems`, because `holds` gets only one value."""
    return Rule(
        cel=f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        message=_IMMUTABLE_MESSAGE,
        holds=lambda value: True,
        field=f".{field}",
    )


RULES = (
    *(_immutable(field) for field in IMMUTABLE),
    Rule(
        cel="!(has(oldSelf.release) && oldSelf.release) || (has(self.release) && self.release)",
        message=_RELEASE_MESSAGE,
        holds=lambda value: True,
        field=".release",
    ),
)


def update_problems(before: Json, after: Json) -> Iterator[Problem]:
    """Changes that an existing claim does not allow."""
    for field in IMMUTABLE:
        if at(before, "spec", field) != at(after, "spec", field):
            yield Problem(f"spec.{field}", _IMMUTABLE_MESSAGE)
    if at(before, "spec", "release") is True and at(after, "spec", "release") is not True:
        yield Problem("spec.release", _RELEASE_MESSAGE)
    for annotation in OVERRIDE_ANNOTATIONS:
        # A user may remove the annotation, because the overrides contain its value.
        was, wanted = (at(each, "metadata", "annotations", annotation) for each in (before, after))
        if wanted is not None and was != wanted:
            yield Problem(child_path("metadata.annotations", annotation), _IMMUTABLE_MESSAGE)


def with_annotation_overrides(document: Json) -> Json:
    """A valid claim, with overrides from its annotations for unset fields of `spec.overrides`."""
    annotations = at(document, "metadata", "annotations")
    if not isinstance(annotations, dict) or annotations.keys().isdisjoint(OVERRIDE_ANNOTATIONS):
        return document
    given = at(document, "spec", "overrides")
    overrides = given if isinstance(given, dict) else {}
    for annotation, field in OVERRIDE_ANNOTATIONS.items():
        value = annotations.get(annotation)
        if isinstance(value, str) and value.strip(" ,") and overrides.get(field) is None:
            overrides = {**overrides, field: _override(field, value)}
    if not overrides:
        return document
    return {**document, "spec": {**document["spec"], "overrides": overrides}}


def _override(field: str, text: str) -> Any:
    return [each.strip() for each in text.split(",") if each.strip()] if field == "securityGroups" else text


NAME_RULE = name_rule(63, "the name has at most 63 characters, because a VM that is created for the claim gets it")


def personalization_labels(document: Json) -> Iterator[Problem]:
    path = "spec.personalization.labels"
    given = at(document, "spec", "personalization", "labels")
    yield from label_problems(given, path)
    for key in given if isinstance(given, dict) else ():
        if isinstance(key, str) and (key.partition("/")[0].endswith(("kubevirt.io", DOMAIN)) and "/" in key):
            yield Problem(
                child_path(path, key), "is not a claim's to give: leave out labels of kubevirt.io and Poolhouse"
            )


def hostname_of_a_waiting_vm(document: Json) -> Iterator[Problem]:
    """A hostname that a claim of a waiting VM asks for: its guest has booted."""
    wanted = at(document, "spec", "personalization", "hostname")
    given = at(with_annotation_overrides(document), "spec", "overrides")
    if wanted and not given and at(document, "spec", "application") is None:
        yield Problem(
            "spec.personalization.hostname",
            "is only for VMs that are created for their claim: add spec.overrides or spec.application, or leave it out",
        )


def empty_annotations(document: Json) -> Iterator[Problem]:
    for annotation in OVERRIDE_ANNOTATIONS:
        value = at(document, "metadata", "annotations", annotation)
        if isinstance(value, str) and not value.strip(" ,"):
            path = child_path("metadata.annotations", annotation)
            yield Problem(path, f"is {quoted(value)}; give a name, or leave the annotation out")


def unknown_annotations(document: Json) -> Iterator[Problem]:
    """Annotations that select no VM: misspelt ones, and others of a Virtual Kubelet's Pod."""
    given = at(document, "metadata", "annotations")
    for key in given if isinstance(given, dict) else ():
        prefix, _, name = str(key).partition("/")
        known = key in OVERRIDE_ANNOTATIONS or key in RECORDED_ANNOTATIONS
        if prefix in (DOMAIN, VIRTUAL_KUBELET) and not known:
            path, advice = child_path("metadata.annotations", key), _advice(prefix, name)
            yield Problem(path, f"is not an annotation of a claim; {advice}")


def _advice(prefix: str, name: str) -> str:
    if (prefix, name) == (VIRTUAL_KUBELET, "tags"):
        return "use spec.personalization.labels, which become tags"
    known = [key.removeprefix(f"{DOMAIN}/") for key in _OWN_ANNOTATIONS]
    similar = get_close_matches(name.lower().replace("_", "-"), known, 1, 0.7)
    return f"did you mean {prefix}/{similar[0]}?" if similar else f"claims have {', '.join(_OWN_ANNOTATIONS)}"


MAX_APPLICATION_VALUES = 4096
"""An API server takes 65 µs of processor time for each value at each write of a claim, also of its labels alone."""


def large_application(document: Json) -> Iterator[Problem]:
    if _number_of_values(at(document, "spec", "application")) > MAX_APPLICATION_VALUES:
        advice = "put variables into a ConfigMap or a Secret, and read them by envFrom or as a volume"
        yield Problem("spec.application", f"has more than {MAX_APPLICATION_VALUES} values; {advice}")


def _number_of_values(value: Any) -> int:
    """The number of texts, numbers and truths in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return sum(map(_number_of_values, inner)) if inner is not None else 1


CHECKS = (
    large_application,
    personalization_labels,
    hostname_of_a_waiting_vm,
    empty_annotations,
    unknown_annotations,
)
