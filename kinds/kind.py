"""`Kind`: the declaration of a kind, which all other rooms read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from apimachinery.problem import Problem
from apimachinery.unstructured import Json
from kinds.checks.metadata import metadata_problems
from kinds.model import Model, Rule
from kinds.schema import structural
from kinds.validation import child_path, normalize, quoted, schema_errors

MAX_PROBLEMS = 100
"""The response of a webhook must stay small."""
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
class ResourceType:
    """A resource whose objects a controller creates."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True
    short_name: str = ""


VMS = ResourceType("kubevirt.io", ("v1",), "virtualmachines", "VirtualMachine")
VMIS = ResourceType("kubevirt.io", ("v1",), "virtualmachineinstances", "VirtualMachineInstance")


@dataclass(frozen=True)
class Template:
    """A part of the spec from which the controller creates objects. The author needs the right to create them."""

    path: tuple[str, ...]
    creates: ResourceType
    adds: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """fields of the created object's spec that the controller sets; a template must not contain them"""
    dry_run: bool = True
    """whether the API server serves the resource, so that admission can try one object"""


@dataclass(frozen=True)
class Phases:
    """Values of `status.phase` that `poolhouse overview` tells apart. In all others the object is in progress."""

    ready: str
    failed: str
    finished: tuple[str, ...] = ()
    """`poolhouse overview` leaves these objects out"""


AGE = Column("Age", ".metadata.creationTimestamp", type="date")


@dataclass(frozen=True)
class Kind:
    """All facts about a kind. Its spec and status are models; the other rooms read the remaining fields."""

    group: str
    versions: tuple[str, ...]
    """All have the same schema. The API server stores the first."""
    kind: str
    plural: str
    doc: str
    spec: type[Model]
    status: type[Model] | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    columns: tuple[Column, ...] = (AGE,)
    scale: Scale | None = None
    status_subresource: bool = True
    spec_required: bool = True
    notes: str = ""
    """text of the reference page before the fields"""

    yields_to_kubevirt: bool = False
    """KubeVirt may have installed the same CRD. Where it has, ours is neither installed nor run."""
    requires: tuple[str, ...] = ()
    """plurals of the kinds without which this one has no effect"""

    rules: tuple[Rule, ...] = ()
    """CEL rules about the whole object. Of its metadata CEL sees only name and generateName."""
    checks: tuple[Check, ...] = ()
    warning_checks: tuple[Callable[[Json], Iterable[str]], ...] = ()
    update_checks: tuple[Callable[[Json, Json], Iterable[Problem]], ...] = ()
    """problems of an update, given the old and the new object"""
    normalizer: Callable[[Json], Json] = lambda document: document

    templates: tuple[Template, ...] = ()
    spec_annotations: tuple[str, ...] = ()
    """annotations that belong to the spec: the webhook checks an update that changes one of them"""
    records_requester: bool = False
    """the webhook writes the name of the user who created the object into an annotation"""
    on_create: Callable[[Json], Json] = lambda document: document
    """completes a valid object that is being created"""
    listed_at_admission: bool = False
    """admission compares a new object with the others, so the webhook may list them"""
    has_finalizer: bool = False
    """the controller sets a finalizer, so it may patch the object"""

    plan_path: str = ""
    """path of the controllers' endpoint that answers what a change would do; empty where there is none"""
    ready_replicas: str = "readyReplicas"
    """field of the status that `poolhouse overview` shows as READY"""
    updated_replicas: str = ""
    """field of the status that `poolhouse overview` shows as UPDATED"""
    phases: Phases | None = None
    """where the status has a phase; None where its conditions tell the health"""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def short_name(self) -> str:
        """The name that the CLI prints and accepts."""
        return self.short_names[0] if self.short_names else self.singular

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.versions[0]}"

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{version}" for version in self.versions)

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"

    @cached_property
    def spec_schema(self) -> Json:
        return structural(self.spec)

    def problems(self, document: Any) -> list[Problem]:
        """All problems, by the schema and by the checks, of a document of any shape."""
        if not isinstance(document, dict):
            return [Problem("", f"must be an object, a {self.kind}, not {quoted(document)}")]
        found = list(islice(_distinct(self._problems(document)), MAX_PROBLEMS + 1))
        if len(found) > MAX_PROBLEMS:
            found[MAX_PROBLEMS:] = [Problem("", f"there are more than these {MAX_PROBLEMS} problems")]
        return found

    def validate_update(self, before: Any, after: Any) -> list[Problem]:
        """Changes that the kind does not allow."""
        if not isinstance(before, dict) or not isinstance(after, dict):
            return []
        return list(islice((problem for check in self.update_checks for problem in check(before, after)), MAX_PROBLEMS))

    def warnings(self, document: Any) -> list[str]:
        """Warnings about valid fields that are probably mistakes."""
        if not isinstance(document, dict):
            return []
        return list(islice((warning for check in self.warning_checks for warning in check(document)), MAX_WARNINGS))

    def normalize(self, document: Json) -> Json:
        """The document as the schema requires it; the same object if nothing changes."""
        if not isinstance(document, dict):
            return document
        spec = document.get("spec")
        found = normalize(self.spec_schema, spec)
        return self.normalizer(document if found is spec else {**document, "spec": found})

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
            yield from schema_errors(self.spec, document["spec"], "spec")
        elif self.spec_required:
            yield Problem("spec", "is missing; give an object")
        for rule in self.rules:
            if not rule.holds(document):
                yield Problem(rule.field.removeprefix("."), rule.message)
        for check in self.checks:
            yield from check(document)


def _distinct(problems: Iterator[Problem]) -> Iterator[Problem]:
    """Each problem once. Lazy, so that a large document is read only until MAX_PROBLEMS are found."""
    seen: set[Problem] = set()
    for problem in problems:
        if problem not in seen:
            seen.add(problem)
            yield problem
