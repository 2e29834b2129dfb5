"""The view of a VirtualMachineInstance that controllers keep instead of the document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from sys import intern
from typing import Any

from apimachinery.owner_references import controller_of
from apimachinery.unstructured import Json, at
from kinds import meta

MAX_DIGITS = 9
"""Longer numbers in annotations count as 0: no controller of ours writes them."""


@dataclass(frozen=True, slots=True)
class ObjectView:
    """The part that views of all objects have in common."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def object_facts(document: Json) -> dict[str, Any]:
    """The metadata as keyword arguments of a view. Fields that the document lacks are empty."""
    metadata, owner = document["metadata"], controller_of(document) or {}
    return {
        "namespace": text(metadata, "namespace"),
        "name": metadata["name"],
        "uid": text(metadata, "uid"),
        "resource_version": text(metadata, "resourceVersion"),
        "owner_uid": text(owner, "uid"),
        "owner_kind": group_kind(owner),
        "owner_name": text(owner, "name"),
        "labels": metadata.get("labels") or {},
        "created_at": text(metadata, "creationTimestamp"),
        "deleted_at": text(metadata, "deletionTimestamp"),
    }


def text(value: Any, *path: str) -> str:
    """The text at a path; empty where it is absent or of another type. Informers call it for each event, so it takes a
    third of the time of `typed`."""
    for key in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(key)
    return value if isinstance(value, str) else ""


def group_kind(reference: Json) -> str:
    """`Kind.group` of an owner reference, as GroupKind prints it in Kubernetes; empty without a reference."""
    if not reference:
        return ""
    group, slash, _ = str(reference.get("apiVersion", "")).partition("/")
    return intern(f"{reference.get('kind', '')}.{group}" if slash else str(reference.get("kind", "")))


def parse_count(text: object) -> int:
    """A number from an annotation. Users may write anything there: other texts count as 0."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) <= MAX_DIGITS else 0


FINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class VMI(ObjectView):
    resource_version: str = field(default="", compare=False)
    """Left out of comparisons, so that a heartbeat alone is not a change."""
    owner_uid: str = ""
    """UID of the controller in the owner references."""
    owner_kind: str = ""
    """Group and kind of the controller: `VirtualMachine.kubevirt.io`."""
    owner_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: str = ""
    deleted_at: str = ""
    """deletionTimestamp; empty while the VMI is not being deleted."""
    phase: str = ""
    phase_times: tuple[tuple[str, str], ...] = ()
    """Phases that the VMI has reached, with their times."""
    reason: str = ""
    conditions: frozenset[str] = frozenset()
    """Types of the conditions that are True."""
    ready: bool = False
    """The Ready condition. Without that condition, a running VMI counts as ready."""
    paused: str = ""
    """Reason of the Paused condition while it is True."""
    start_failure: str = ""
    """Reason why the VMI cannot start: Unschedulable, ErrImagePull, ..."""
    message: str = ""
    node: str = ""
    addresses: tuple[str, ...] = ()
    migrating: bool = False
    ended_at: str = ""
    """Time at which the VMI reached its final phase."""
    attempt: int = 0
    """Annotation poolhouse.dev/attempt: predecessors in a row that ended early."""

    @property
    def deleting(self) -> bool:
        return bool(self.deleted_at)

    @property
    def final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def unknown(self) -> bool:
        """The node does not answer: the VMI may be running or not."""
        return self.phase == "Unknown"

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting

    @property
    def agent_connected(self) -> bool:
        return "AgentConnected" in self.conditions

    @property
    def revision(self) -> str:
        return self.labels.get(meta.REVISION, "")

    @property
    def started_at(self) -> str:
        """Time at which the VMI began to run; empty if it never ran."""
        return next((time for phase, time in self.phase_times if phase == "Running"), "")


def parse_vmi(document: Json) -> VMI:
    """Fields that the document lacks keep their defaults."""
    status = document.get("status") or {}
    phase = intern(text(status, "phase"))
    conditions: dict[str, Json] = {c.get("type", ""): c for c in status.get("conditions") or ()}
    true = _interned(frozenset(kind for kind, c in conditions.items() if c.get("status") == "True"))
    times = tuple(
        (intern(text(each, "phase")), text(each, "phaseTransitionTimestamp"))
        for each in status.get("phaseTransitionTimestamps") or ()
    )
    start_failure, message = _start_failure(conditions)
    return VMI(
        **object_facts(document),
        phase=phase,
        phase_times=times,
        reason=text(status, "reason"),
        conditions=true,
        ready="Ready" in true if "Ready" in conditions else phase == "Running",
        paused=(text(conditions, "Paused", "reason") or "Paused") if "Paused" in true else "",
        start_failure=start_failure,
        message=message,
        node=text(status, "nodeName"),
        addresses=tuple(each["ipAddress"] for each in status.get("interfaces") or () if each.get("ipAddress")),
        migrating=_is_migrating(status.get("migrationState") or {}),
        ended_at=_ended_at(phase, dict(times), conditions),
        attempt=parse_count(at(document, "metadata", "annotations", meta.ATTEMPT)),
    )


@cache
def _interned(conditions: frozenset[str]) -> frozenset[str]:
    """One object for equal sets: thousands of VMIs have the same conditions."""
    return conditions


def _start_failure(conditions: Mapping[str, Json]) -> tuple[str, str]:
    """PodScheduled reports a gated or unschedulable pod, Synchronized a missing image or disk."""
    for kind in ("PodScheduled", "Synchronized"):
        found = conditions.get(kind) or {}
        if found.get("status") == "False" and found.get("reason"):
            return found["reason"], found.get("message") or ""
    return "", ""


def _is_migrating(state: Json) -> bool:
    return bool(state) and not (state.get("completed") or state.get("failed"))


def _ended_at(phase: str, times: Mapping[str, str], conditions: Mapping[str, Json]) -> str:
    if phase not in FINAL_PHASES:
        return ""
    return times.get(phase) or text(conditions, "Ready", "lastTransitionTime")
