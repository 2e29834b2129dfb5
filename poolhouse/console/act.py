"""What an act on an object is: its form, its command of kubectl, the right that it needs, and the request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.cli.cluster import Cluster
from poolhouse.console.cluster_state import Right
from poolhouse.runtime.resource import VMS, Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

VM = "VirtualMachine"
CONFIRMED = "confirmed"
"""value of a form with the loss that the user has agreed to"""
Values = Mapping[str, str]


@dataclass(frozen=True)
class Target:
    """The object of an act."""

    kind: str
    document: Json

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def spec(self) -> Json:
        return self.document.get("spec") or {}

    @property
    def status(self) -> Json:
        return self.document.get("status") or {}

    @property
    def resource(self) -> Resource:
        return VMS if self.kind == VM else Resource.of(next(kind for kind in KINDS if kind.kind == self.kind))


@dataclass(frozen=True)
class Field:
    """A value that a form asks for, or that it keeps of what the page shows (type hidden)."""

    name: str
    label: str
    value: Callable[[Target], str] = lambda target: ""
    type: str = "text"
    help: str = ""
    required: bool = False


@dataclass(frozen=True)
class Done:
    message: str
    made: str = ""
    """the page of an object that the act has created"""


@dataclass(frozen=True)
class Preview:
    document: Json
    """the object as the act would store it"""
    message: str = ""
    """what the act has chosen itself, as a sentence"""


Run = Callable[["Api", Cluster, Target, Values], Awaitable[str | Done]]
Look = Callable[["Api", Cluster, Target, Values], Awaitable[Preview]]


def nothing(target: Target, values: Values) -> str:
    return ""


def may_patch(target: Target) -> Right:
    return Right("patch", target.resource)


def patches(change: Json, done: str) -> Run:
    """Merges the change into the object."""

    async def run(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
        await api.patch(target.resource, target.namespace, target.name, change)
        return f"{target.name} {done}"

    return run


@dataclass(frozen=True)
class Act:
    name: str
    label: str
    kinds: tuple[str, ...]
    help: str
    command: Callable[[Target], str]
    """the kubectl command that does the same, with {field} for a value, and [ --option {field}] for an optional one"""
    run: Run
    """does it, and says what is done; raises `Failed` or an API error"""
    right: Callable[[Target], Right]
    destroys: Callable[[Target, Values], str] = nothing
    """what the act deletes, restarts or loses, as a sentence; empty if it does not"""
    fields: tuple[Field, ...] = ()
    available: Callable[[Target], bool] = lambda target: True
    preview: Look | None = None
    """what the act would store, whose difference and plan the console shows when it asks"""
    in_row: bool = False
    """whether its button is in a row of a table that the page shows, and not among those of the object"""

    @property
    def asks(self) -> bool:
        """Whether the act can destroy something, so that the console asks before it."""
        return self.destroys is not nothing

    def template(self, target: Target) -> str:
        namespace = f" -n {target.namespace}" if target.namespace else ""
        return f"kubectl {self.command(target)}{namespace}"

    def shell(self, target: Target, values: Values) -> str:
        """The command with these values. The page's script does the same while a user types."""
        return fill(self.template(target), values)


def fill(template: str, values: Values) -> str:
    """The command with the values in place of `{name}`, and without `[...{name}]` if the value is empty."""

    def optional(found: re.Match[str]) -> str:
        value = values.get(found[2], "").strip()
        return found[1] + shlex.quote(value) if value else ""

    def required(found: re.Match[str]) -> str:
        value = values.get(found[1], "").strip()
        return shlex.quote(value) if value else found[0]

    return re.sub(r"\{(\w+)\}", required, re.sub(r"\[([^\]{]*)\{(\w+)\}\]", optional, template))
