"""What is kept of a VirtualMachineInstance: the run of a VM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, NamedTuple

from kinds import meta

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VMI:
    namespace: str
    name: str
    uid: str
    owner: str = ""
    """UID of its VM"""
    revision: str = ""
    """label of the template's revision that it was started from"""
    deleting: bool = False
    phase: str = ""
    born: int = 0
    """these times are seconds, as the API has them"""
    deleted_at: int = 0
    passed: tuple[tuple[str, int], ...] = ()
    """phases that it has reached, and when"""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def shut_down(self) -> bool:
        """It has ended as it was meant to."""
        return self.phase == "Succeeded"


class Transition(NamedTuple):
    last_phase: str
    """empty for the first one"""
    phase: str
    seconds: int
    """since the last phase was reached"""
    from_creation: int
    from_deletion: int | None
    """None where it ended by itself"""


ENDS = frozenset({"Succeeded", "Failed"})


def transitions(old: VMI, new: VMI) -> Iterator[Transition]:
    """What happened between two looks at one run, phases that were passed through between them included."""
    last, since = old.passed[-1] if old.passed else ("", new.born)
    for phase, at in new.passed[len(old.passed) :]:
        ended = at - new.deleted_at if phase in ENDS and new.deleted_at else None
        yield Transition(last, phase, at - since, at - new.born, ended)
        last, since = phase, at


def parse_vmi(document: Json) -> VMI:
    metadata, status = document["metadata"], document.get("status") or {}
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    return VMI(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        owner=owner.get("uid", ""),
        revision=(metadata.get("labels") or {}).get(meta.REVISION, ""),
        deleting=metadata.get("deletionTimestamp") is not None,
        phase=intern(status.get("phase") or ""),
        born=_seconds(metadata.get("creationTimestamp")),
        deleted_at=_seconds(metadata.get("deletionTimestamp")),
        passed=tuple(
            (intern(each["phase"]), _seconds(each.get("phaseTransitionTimestamp")))
            for each in status.get("phaseTransitionTimestamps") or ()
        ),
    )


def _seconds(time: str | None) -> int:
    return int(datetime.fromisoformat(time).timestamp()) if time else 0
