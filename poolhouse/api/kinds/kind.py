"""`Kind`: the declaration of a kind, which all other packages use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.checks.metadata import metadata_problems
from poolhouse.api.kinds.model import Model, Rule
from poolhouse.api.kinds.resource_types import ResourceType
from poolhouse.api.kinds.schema import structural
from poolhouse.api.kinds.validation import child_path, normalize, quoted, schema_errors

MAX_PROBLEMS = 100
"""Limit on reported problems, because the response of a webhook must be small."""
MAX_WARNINGS = 20

Check = Callable[[Json], Iterable[Problem]]
"""Checks the whole document for problems that the schema cannot express. Any field may be missing or of any type."""

_ROOT = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. A wide column is shown only with `-o wide`."""

    name: str
    path: str
    description: str = ""
    type: Literal["string", "integer", "date", "boolean", "number"] = "string"
    wide: bool = False


@dataclass(frozen=True)
class Scale:
    """Paths of the scale subresource."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str | None = ".status.labelSelector"


@dataclass(frozen=True)
class Template:
    """A part of the spec from which the controller creates objects. The user needs the right to create such objects."""

    path: tuple[str, ...]
    creates: ResourceType
    adds: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """fields of the created object's spec that the controller sets; a template must not contain them"""
    dry_run: bool = True
    """whether the API server serves the resource, so that admission can create an object in a dry run"""


AGE = Column("Age", ".metadata.creationTimestamp", type="date")
STATUS = Column("Status", ".status.conditions[?(@.type=='Ready')].reason", "Why the object is ready, or is not")


def with_replicas(document: Json) -> Json:
    """A new object with the number that a missing `spec.replicas` means."""
    spec = typed(dict, document, "spec")
    if spec is None or spec.get("replicas") is not None:
        return document
    return {**document, "spec": {**spec, "replicas": 1}}


@dataclass(frozen=True, kw_only=True)
class Kind(ResourceType):
    """All properties of a kind, including the models of its spec and status."""

    doc: str
    spec: type[Model]
    status: type[Model] | None = None
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    scale: Scale | None = None
    status_subresource: bool = True
    spec_required: bool = True
    notes: str = ""
    """text of the reference page before the fields"""

    yields_to_kubevirt: bool = False
    """whether Poolhouse neither installs nor reconciles the kind if KubeVirt has installed the same CRD"""
    requires: tuple[str, ...] = ()
    """plurals of the kinds without which this kind has no effect"""

    rules: tuple[Rule, ...] = ()
    """CEL rules about the whole object. CEL can use only name and generateName of the metadata."""
    checks: tuple[Check, ...] = ()
    warning_checks: tuple[Callable[[Json], Iterable[str]], ...] = ()
    update_checks: tuple[Callable[[Json, Json], Iterable[Problem]], ...] = ()
    """functions that return the problems of an update, from the old and the new object"""
    if_missing: tuple[tuple[str, str], ...] = ()
    """paths of required fields, and what to write there, where the schema alone does not say enough"""
    normalizer: Callable[[Json], Json] = lambda document: document

    templates: tuple[Template, ...] = ()
    spec_annotations: tuple[str, ...] = ()
    """annotations that are checked like the spec: the webhook checks updates that change them"""
    deleted_by_controllers: bool = False
    """whether the controllers delete objects of the kind, for which they need the right"""
    records_requester: bool = False
    """whether the webhook writes the name of the creating user into an annotation"""
    on_create: Callable[[Json], Json] = lambda document: document
    """function that completes a valid object at its creation"""
    listed_at_admission: bool = False
    """whether admission compares a new object with others, so that the webhook needs the right to list them"""
    has_finalizer: bool = False
    """whether the controller sets a finalizer, for which it needs the right to patch the object"""

    plan_path: str = ""
    """path of the controllers' endpoint that returns the plan of a change; empty if there is none"""

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"

    @cached_property
    def spec_schema(self) -> Json:
        return structural(self.spec)

    def problems(self, document: Any) -> list[Problem]:
        """All problems that the schema and the checks find in a document of any shape."""
        if not isinstance(document, dict):
            return [Problem("", f"must be an object, a {self.kind}, not {quoted(document)}")]
        found = list(islice(_distinct(self._problems(document)), MAX_PROBLEMS + 1))
        if len(found) > MAX_PROBLEMS:
            found[MAX_PROBLEMS:] = [Problem("", f"there are more than these {MAX_PROBLEMS} problems")]
        return found

    def validate_update(self, before: Any, after: Any) -> list[Problem]:
        """Problems of an update: changes that the kind does not allow."""
        if not isinstance(before, dict) or not isinstance(after, dict):
            return []
        return list(islice((problem for check in self.update_checks for problem in check(before, after)), MAX_PROBLEMS))

    def warnings(self, document: Any) -> list[str]:
        """Warnings about valid fields that are probably mistakes."""
        if not isinstance(document, dict):
            return []
        return list(islice((warning for check in self.warning_checks for warning in check(document)), MAX_WARNINGS))

    def normalize(self, document: Json) -> Json:
        """The document in the form that the schema requires; the same object if nothing changes."""
        if not isinstance(document, dict):
            return document
        spec = document.get("spec")
        found = normalize(self.spec_schema, spec)
        return self.normalizer(document if found is spec else {**document, "spec": found})

    def keep_replicas(self, document: Json, old: Json | None) -> Json:
        """The update of an object with the stored number of replicas, if it leaves the number out: the manifest of an
        object that an autoscaler scales does not have it."""
        stored = at(old, "spec", "replicas") if self.scale is not None else None
        spec = typed(dict, document, "spec")
        if stored is None or spec is None or spec.get("replicas") is not None:
            return document
        return {**document, "spec": {**spec, "replicas": stored}}

    def _problems(self, document: Json) -> Iterator[Problem]:
        if document.get("apiVersion") not in self.api_versions:
            wanted = " or ".join(self.api_versions)
            yield Problem("apiVersion", f"must be {wanted}, not {quoted(document.get('apiVersion'))}")
        if document.get("kind") != self.kind:
            yield Problem("kind", f"must be {self.kind}, not {quoted(document.get('kind'))}")
        for key in document:
            if key not in _ROOT:
                yield Problem(child_path("", key), f"is not a field here; there are {', '.join(_ROOT)}")
        yield from metadata_problems(document)
        if "spec" in document:
            for problem in schema_errors(self.spec, document["spec"], "spec"):
                more = dict(self.if_missing).get(problem.path) if problem.message.startswith("is missing") else None
                yield replace(problem, message=f"{problem.message}: {more}") if more else problem
        elif self.spec_required:
            yield Problem("spec", "is missing; give an object")
        for rule in self.rules:
            if not rule.holds(document):
                yield Problem(rule.field.removeprefix("."), rule.message)
        for check in self.checks:
            yield from check(document)


def _distinct(problems: Iterator[Problem]) -> Iterator[Problem]:
    """The problems without duplicates. Lazy, so that checks of a large document stop after MAX_PROBLEMS."""
    seen: set[Problem] = set()
    for problem in problems:
        if problem not in seen:
            seen.add(problem)
            yield problem
