"""Actions of a replica set's plan.

`verb` identifies an action in plans and logs, `past` describes it in events. `succeeded` and `failed` are the reasons
of its events, `failure` is the reason of the condition ReplicaFailure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controllers.replicaset.reasons import ReplicaSetReason


@dataclass(frozen=True)
class Create:
    name: str
    reason: str
    attempt: int = 0
    """predecessors in a row that ended early"""
    verb: ClassVar[str] = "Create"
    past: ClassVar[str] = "created"
    succeeded: ClassVar[ReplicaSetReason] = ReplicaSetReason.SUCCESSFUL_CREATE
    failed: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILED_CREATE
    failure: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILURE_CREATE


@dataclass(frozen=True)
class _OnVMI:
    name: str
    uid: str
    resource_version: str
    reason: str


@dataclass(frozen=True)
class Delete(_OnVMI):
    verb: ClassVar[str] = "Delete"
    past: ClassVar[str] = "deleted"
    succeeded: ClassVar[ReplicaSetReason] = ReplicaSetReason.SUCCESSFUL_DELETE
    failed: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILED_DELETE
    failure: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILURE_DELETE


@dataclass(frozen=True)
class Adopt(_OnVMI):
    """Adds the set's owner reference."""

    verb: ClassVar[str] = "Adopt"
    past: ClassVar[str] = "adopted"
    succeeded: ClassVar[ReplicaSetReason] = ReplicaSetReason.SUCCESSFUL_ADOPT
    failed: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILED_ADOPT
    failure: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILURE_ADOPT


@dataclass(frozen=True)
class Release(_OnVMI):
    """Removes the set's owner reference. The VMI runs on."""

    verb: ClassVar[str] = "Release"
    past: ClassVar[str] = "released"
    succeeded: ClassVar[ReplicaSetReason] = ReplicaSetReason.SUCCESSFUL_RELEASE
    failed: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILED_RELEASE
    failure: ClassVar[ReplicaSetReason] = ReplicaSetReason.FAILURE_RELEASE


Action = Create | Delete | Adopt | Release
