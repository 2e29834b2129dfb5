"""What all objects have: metadata, conditions, and their form as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Json = dict[str, Any]


class Model(BaseModel):
    """Fields have the names of Python, and can be set by these or by the names of the API. Fields of later releases
    are kept. Only the API server checks values: its error names every problem."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="allow",
        protected_namespaces=(),
        defer_build=True,  # a program needs few of the models, and building all of them takes half of the import
    )

    def to_json(self) -> Json:
        """The fields that were set, under the names of the API."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class ResourceType:
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class ObjectMeta(Model):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Condition(Model):
    """A condition of the object."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    """Reason of the last transition, in CamelCase."""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class Status(Model):
    """The fields of every kind's status."""

    observed_generation: int | None = None
    conditions: list[Condition] = Field(default_factory=list)


class KubernetesObject(Model):
    TYPE: ClassVar[ResourceType]

    metadata: ObjectMeta

    @classmethod
    def new(cls, name: str, **fields: Any) -> Self:
        """A new object with this name: `VirtualMachineClaim.new("mine", spec={"poolName": "web"})`."""
        return cls.model_validate({"metadata": {"name": name}, **fields})

    @property
    def name(self) -> str:
        return self.metadata.name

    def to_json(self) -> Json:
        return {"apiVersion": self.TYPE.api_version, "kind": self.TYPE.kind, **super().to_json()}

    def condition(self, type: str) -> Condition | None:
        """The condition of this type, or None."""
        status: Status = self.status  # type: ignore[attr-defined]
        return next((each for each in status.conditions if each.type == type), None)

    @property
    def observed(self) -> bool:
        """Whether the controllers have seen the last change of the spec, so that the status is about it."""
        status: Status = self.status  # type: ignore[attr-defined]
        return status.observed_generation == self.metadata.generation

    @property
    def ready(self) -> bool:
        return self._is_current and self._holds("Ready")

    @property
    def stalled(self) -> bool:
        """Whether the object does not become ready without a change."""
        return self._is_current and self._holds("Stalled")

    @property
    def ended(self) -> bool:
        """Whether the object asks for nothing any more, such as a claim that was released or has expired."""
        finished = getattr(self.status, "finished_at", None)  # type: ignore[attr-defined]
        return self._is_current and finished is not None and not self._holds("Stalled")

    @property
    def _is_current(self) -> bool:
        return self.observed and self.metadata.deletion_timestamp is None

    def _holds(self, type: str) -> bool:
        found = self.condition(type)
        return found is not None and found.status == "True"


T = TypeVar("T", bound=KubernetesObject)


class Event(NamedTuple, Generic[T]):
    """A change of an object, or an object that was there when the watch began (ADDED)."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T
