"""What is kept of a VirtualMachineInstance: a few facts instead of a document."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controllers.replicaset.naming import base_name
from kinds import meta

Json = dict[str, Any]

FINAL = ("Succeeded", "Failed")
KIND = "VirtualMachineInstanceReplicaSet"


@dataclass(frozen=True, slots=True)
class VMI:
    """A VMI, as far as a set is concerned. Of one that is somebody else's no more is known than its name."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    owner: str = ""
    """UID of its controller"""
    owner_name: str = ""
    """the set's name, where a set is its controller"""
    labels: Mapping[str, str] = field(default_factory=dict)
    born: str = ""
    """creationTimestamp, which sorts as text"""
    deleting: bool = False
    phase: str = ""
    ready: bool = False
    migrating: bool = False
    attempt: int = 0
    """how many before it, one replacing the other, ended early"""
    ran_at: str = ""
    """when it began to run; empty if it never did"""
    ended_at: str = ""
    """when it became final"""
    why: str = ""
    """why it ended"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def unknown(self) -> bool:
        """Its node does not answer: it may run or not."""
        return self.phase == "Unknown"

    @property
    def orphan(self) -> bool:
        """It could be adopted."""
        return not self.owner and not self.deleting and not self.final


def parse_vmi(document: Json) -> VMI:
    """The view of a VirtualMachineInstance. Whatever is missing in it counts as nothing."""
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata.get("uid", "")
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    ours = owner.get("kind") == KIND and owner.get("apiVersion", "").startswith("kubevirt.io/")
    if owner and not ours:
        return VMI(*key, owner=owner.get("uid", ""))
    status = document.get("status") or {}
    phase = status.get("phase") or ""
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    reached = {each.get("phase"): each.get("phaseTransitionTimestamp") for each in _transitions(status)}
    ready = conditions.get("Ready") or {}
    return VMI(
        *key,
        resource_version=metadata.get("resourceVersion", ""),
        owner=owner.get("uid", ""),
        owner_name=owner.get("name", ""),
        labels=metadata.get("labels") or {},
        born=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        phase=phase,
        # As the document has it, before there was such a condition: what runs is ready.
        ready=ready.get("status") == "True" if ready else phase == "Running",
        migrating=_migrating(status),
        attempt=_number((metadata.get("annotations") or {}).get(meta.ATTEMPT)),
        ran_at=reached.get("Running") or "",
        ended_at=(reached.get(phase) or ready.get("lastTransitionTime") or "") if phase in FINAL else "",
        why=status.get("reason") or "" if phase in FINAL else "",
    )


def _transitions(status: Json) -> list[Json]:
    return list(status.get("phaseTransitionTimestamps") or ())


def _migrating(status: Json) -> bool:
    state = status.get("migrationState") or {}
    return bool(state) and not (state.get("completed") or state.get("failed"))


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else 0


def by_owner(i: VMI) -> Iterator[Hashable]:
    """Index of a set's instances."""
    if i.owner_name:
        yield i.owner


def by_orphanage(i: VMI) -> Iterator[Hashable]:
    """Index of instances that could be adopted, by namespace."""
    if i.orphan:
        yield i.namespace


def by_stem(i: VMI) -> Iterator[Hashable]:
    """Index of the names that a set could give, whoever has them: (namespace, stem)."""
    if stem := base_name(i.name):
        yield i.namespace, stem
