"""The view of a VirtualMachineInstance, and functions for all views."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from sys import intern
from typing import Any

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.live_updates import UNKNOWN_GUEST, RunningGuest, read_guest
from poolhouse.api.kubevirt.versions import TERMINATE

DISKS = (
    ("dataVolume", "name"),
    ("persistentVolumeClaim", "claimName"),
    ("ephemeral", "persistentVolumeClaim", "claimName"),
)
"""Paths in a volume to the name of a DataVolume or PersistentVolumeClaim."""
MAX_DIGITS = 9
"""Longer numbers in annotations count as 0, because the controllers never write them."""


@dataclass(frozen=True, slots=True)
class ObjectView:
    """The common part of all views of objects."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def object_facts(document: Json, owner: Json | None) -> dict[str, Any]:
    """The metadata as keyword arguments of a view, with an owner reference. Missing fields are empty.

    Texts that thousands of objects share are interned: they are half of the memory of a view."""
    metadata, owner = document["metadata"], owner or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    return {
        "namespace": intern(text(metadata, "namespace")),
        "name": metadata["name"],
        "uid": text(metadata, "uid"),
        "resource_version": text(metadata, "resourceVersion"),
        "owner_uid": intern(text(owner, "uid")),
        "owner_kind": group_kind(owner),
        "owner_name": intern(text(owner, "name")),
        "labels": {intern(key): intern(value) for key, value in labels.items()},
        "created_at": text(metadata, "creationTimestamp"),
        "deleted_at": text(metadata, "deletionTimestamp"),
    }


def text(value: Any, *path: str) -> str:
    """The text at a path, or an empty string for a missing value or another type. Informers call this function for each
    event, so it is three times as fast as `typed`."""
    for key in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(key)
    return value if isinstance(value, str) else ""


def group_kind(reference: Json) -> str:
    """`Kind.group` of an owner reference, as GroupKind prints it in Kubernetes. An empty string without a reference."""
    if not reference:
        return ""
    group, slash, _ = str(reference.get("apiVersion", "")).partition("/")
    return intern(f"{reference.get('kind', '')}.{group}" if slash else str(reference.get("kind", "")))


def parse_count(text: object) -> int:
    """Parses a number in an annotation. Other texts count as 0, because users may write any text."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) <= MAX_DIGITS else 0


FINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class VMI(ObjectView):
    resource_version: str = field(default="", compare=False)
    """The resourceVersion is not compared, so that a heartbeat alone is not a change."""
    owner_uid: str = ""
    """UID of the controller owner."""
    owner_kind: str = ""
    """Kind and group of the controller owner, such as `VirtualMachine.kubevirt.io`."""
    owner_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: str = ""
    deleted_at: str = ""
    """The deletionTimestamp, or an empty string."""
    phase: str = ""
    phase_times: tuple[tuple[str, str], ...] = ()
    """Phases that the VMI has reached, with their times."""
    reason: str = ""
    conditions: frozenset[str] = frozenset()
    """Types of the conditions that are True."""
    ready: bool = False
    """The condition Ready. Without this condition, a running VMI counts as ready."""
    unready_since: str = ""
    """The time at which a running VMI began to be not ready, or an empty string."""
    paused: str = ""
    """The reason of the condition Paused while it is True."""
    start_failure: str = ""
    """The reason why the VMI cannot start, such as Unschedulable or ErrImagePull."""
    message: str = ""
    node: str = ""
    addresses: tuple[str, ...] = ()
    """Addresses of the interfaces, which the guest may have reported."""
    active_pods: tuple[str, ...] = ()
    """UIDs of the launcher Pods, of which a live migration has two. Empty in the stores that need none."""
    migrating: bool = False
    migration_failed: bool = False
    """Whether the last migration failed, and no other one has begun."""
    evacuated: bool = False
    """Whether KubeVirt, or another controller, is to move the VMI away from its node: an eviction has marked it."""
    ends_at_reboot: bool = False
    """Whether the VMI succeeds when its guest reboots (`rebootPolicy: Terminate`)."""
    ended_at: str = ""
    """The time at which the VMI reached its final phase."""
    disks: tuple[str, ...] = ()
    """Names of the DataVolumes and PersistentVolumeClaims that the VMI uses."""
    eviction_strategy: str = ""
    """empty if the VMI has none, so that the strategy of the cluster applies"""
    guest: RunningGuest = UNKNOWN_GUEST
    """what changes of the running VMI depend on"""
    attempt: int = 0
    """The annotation poolhouse.dev/attempt: the number of consecutive predecessors that ended early."""

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
        """Whether the VMI's node does not answer, so that the state of the VMI is unknown."""
        return self.phase == "Unknown"

    @property
    def running(self) -> bool:
        return self.phase == "Running" and not self.deleting

    @property
    def moving(self) -> bool:
        """Whether the running VMI leaves its node, or is to leave it. After a failed migration it may never do that:
        KubeVirt tries again for ever."""
        return self.running and (self.migrating or (self.evacuated and not self.migration_failed))

    @property
    def agent_connected(self) -> bool:
        return "AgentConnected" in self.conditions

    @property
    def revision(self) -> str:
        return self.labels.get(meta.REVISION, "")

    @property
    def started_at(self) -> str:
        """The time at which the VMI started to run, or an empty string."""
        return next((time for phase, time in self.phase_times if phase == "Running"), "")


def parse_vmi(document: Json) -> VMI:
    """Parses a VirtualMachineInstance. Missing fields get their defaults."""
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
        **object_facts(document, controller_of(document)),
        phase=phase,
        phase_times=times,
        reason=text(status, "reason"),
        conditions=true,
        ready="Ready" in true if "Ready" in conditions else phase == "Running",
        unready_since=_unready_since(phase, dict(times), conditions),
        paused=(text(conditions, "Paused", "reason") or "Paused") if "Paused" in true else "",
        start_failure=start_failure,
        message=message,
        node=text(status, "nodeName"),
        addresses=tuple(each["ipAddress"] for each in status.get("interfaces") or () if each.get("ipAddress")),
        migrating=_is_migrating(status.get("migrationState") or {}),
        migration_failed=bool(at(status, "migrationState", "failed")),
        evacuated=bool(status.get("nodeName")) and status.get("evacuationNodeName") == status.get("nodeName"),
        ends_at_reboot=at(document, "spec", "domain", "rebootPolicy") == TERMINATE,
        ended_at=_ended_at(phase, dict(times), conditions),
        disks=tuple(_disks((document.get("spec") or {}).get("volumes") or ())),
        eviction_strategy=intern(text(document, "spec", "evictionStrategy")),
        guest=read_guest(document),
        attempt=parse_count(at(document, "metadata", "annotations", meta.ATTEMPT)),
    )


def parse_vmi_with_pods(document: Json) -> VMI:
    """Like `parse_vmi`, with the launcher Pods."""
    active = at(document, "status", "activePods")
    return replace(parse_vmi(document), active_pods=tuple(sorted(active)) if isinstance(active, dict) else ())


def _disks(volumes: Iterable[Json]) -> Iterator[str]:
    for volume in volumes:
        names = (text(volume, *path) for path in DISKS)
        if name := next(filter(None, names), ""):
            yield name


@cache
def _interned(conditions: frozenset[str]) -> frozenset[str]:
    """Returns one object for equal sets, because thousands of VMIs have the same conditions."""
    return conditions


def _start_failure(conditions: Mapping[str, Json]) -> tuple[str, str]:
    """The condition PodScheduled reports a gated or unschedulable pod. Synchronized reports a missing image or disk."""
    for kind in ("PodScheduled", "Synchronized"):
        found = conditions.get(kind) or {}
        if found.get("status") == "False" and found.get("reason"):
            return found["reason"], found.get("message") or ""
    return "", ""


def _is_migrating(state: Json) -> bool:
    return bool(state) and not (state.get("completed") or state.get("failed"))


def _unready_since(phase: str, times: Mapping[str, str], conditions: Mapping[str, Json]) -> str:
    """The condition Ready may be False since before the phase Running: the later of both times counts. The times are in
    UTC, so that they compare as texts."""
    if phase != "Running" or text(conditions, "Ready", "status") != "False":
        return ""
    return max(times.get(phase, ""), text(conditions, "Ready", "lastTransitionTime"))


def _ended_at(phase: str, times: Mapping[str, str], conditions: Mapping[str, Json]) -> str:
    if phase not in FINAL_PHASES:
        return ""
    return times.get(phase) or text(conditions, "Ready", "lastTransitionTime")
