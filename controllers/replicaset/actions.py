"""What a plan may say, with the words in which it is told: as an event when it was done, as an event and as the reason
of the condition ReplicaFailure when the API server refused it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Create:
    name: str
    reason: str
    attempt: int = 0
    """how many before it, one replacing the other, ended early"""
    done: ClassVar[str] = "SuccessfulCreate"
    refused: ClassVar[str] = "FailedCreate"
    failure: ClassVar[str] = "FailureCreate"
    verb: ClassVar[str] = "Create"
    past: ClassVar[str] = "created"


@dataclass(frozen=True)
class Delete:
    name: str
    uid: str
    resource_version: str
    reason: str
    done: ClassVar[str] = "SuccessfulDelete"
    refused: ClassVar[str] = "FailedDelete"
    failure: ClassVar[str] = "FailureDelete"
    verb: ClassVar[str] = "Delete"
    past: ClassVar[str] = "deleted"


@dataclass(frozen=True)
class Adopt:
    """Makes the set its controller."""

    name: str
    uid: str
    resource_version: str
    reason: str
    done: ClassVar[str] = "SuccessfulAdopt"
    refused: ClassVar[str] = "FailedAdopt"
    failure: ClassVar[str] = "FailureAdopt"
    verb: ClassVar[str] = "Adopt"
    past: ClassVar[str] = "adopted"


@dataclass(frozen=True)
class Release:
    """Takes the set's owner reference off it; it runs on."""

    name: str
    uid: str
    resource_version: str
    reason: str
    done: ClassVar[str] = "SuccessfulRelease"
    refused: ClassVar[str] = "FailedRelease"
    failure: ClassVar[str] = "FailureRelease"
    verb: ClassVar[str] = "Release"
    past: ClassVar[str] = "released"


Action = Create | Delete | Adopt | Release
