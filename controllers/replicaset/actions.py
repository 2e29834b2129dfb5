"""Actions of a replica set's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controllers.replicaset.reasons import ReplicaSetReason


@dataclass(frozen=True)
class _Action:
    name: str
    past: ClassVar[str]
    """describes the action in events"""
    verb: ClassVar[str]
    """identifies the action in plans and logs"""
    succeeded: ClassVar[ReplicaSetReason]
    """reasons of its events"""
    failed: ClassVar[ReplicaSetReason]
    failure: ClassVar[ReplicaSetReason]
    """reason of the condition ReplicaFailure"""

    def __init_subclass__(cls, past: str = "") -> None:
        if past:
            cls.past, cls.verb = past, cls.__name__
            cls.succeeded, cls.failed, cls.failure = (
                ReplicaSetReason.of(f"{how}{cls.verb}") for how in ("Successful", "Failed", "Failure")
            )


@dataclass(frozen=True)
class Create(_Action, past="created"):
    reason: str
    attempt: int = 0
    """predecessors in a row that ended early"""


@dataclass(frozen=True)
class _OnVMI(_Action):
    uid: str
    resource_version: str
    reason: str


class Delete(_OnVMI, past="deleted"):
    pass


class Adopt(_OnVMI, past="adopted"):
    """Adds the set's owner reference."""


class Release(_OnVMI, past="released"):
    """Removes the set's owner reference. The VMI runs on."""


Action = Create | Delete | Adopt | Release
