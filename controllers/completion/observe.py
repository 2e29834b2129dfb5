"""What is known of a VM that may need completion. Reads, and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from defaulter.contract import Macs, undefaulted
from kinds.look import at
from kinds.meta import DEFAULTING, DISABLED, UNDEFAULTED
from kinds.webhooks import LEFT_ALONE
from runtime.api import Api, NotFound
from runtime.resource import Key, Resource

Json = dict[str, Any]
Instance = Literal["none", "going", "running"]

MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
INSTANCES = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


@dataclass(frozen=True, slots=True)
class Machine:
    """A VirtualMachine, as far as completion is concerned."""

    namespace: str
    name: str
    generation: int
    """changes with the spec; what was refused once is worth another try then"""
    undefaulted: bool
    noted: bool
    """it says of itself that it is to be completed"""
    deleting: bool
    created: bool
    """by its own status it has an instance; when that changes, its instance is looked at again"""
    state: str
    macs: tuple[str, ...] = ()
    """of its interfaces, as they are written down"""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def pending(self) -> bool:
        return (self.undefaulted or self.noted) and not self.deleting


@dataclass(frozen=True)
class State:
    machine: Machine
    instance: Instance
    opted_out: bool
    """by its namespace; a VM that opted out by itself is not undefaulted"""


def machine(document: Json, macs: Macs = "deterministic") -> Machine:
    metadata = document["metadata"]
    # A VM without anything pending is the usual one. What it does is no news then, and makes no change to its view.
    empty, noted = bool(undefaulted(document, macs=macs)), UNDEFAULTED in (metadata.get("annotations") or {})
    pending = empty or noted
    return Machine(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        generation=metadata.get("generation", 0) if pending else 0,
        undefaulted=empty,
        noted=noted,
        deleting=bool(metadata.get("deletionTimestamp")),
        created=pending and bool(at(document, "status", "created")),
        state=str(at(document, "status", "printableStatus") or "") if pending else "",
        macs=() if metadata.get("deletionTimestamp") else macs_of(document),
    )


def macs_of(document: Json) -> tuple[str, ...]:
    """In one spelling: two of an address are one."""
    interfaces = at(document, "spec", "template", "spec", "domain", "devices", "interfaces") or ()
    return tuple(str(mac).lower().replace("-", ":") for each in interfaces if (mac := each.get("macAddress")))


async def observe(api: Api, key: Key, macs: Macs) -> tuple[State, Json] | None:
    """The VM as it is now, not as it was last heard of, and its document; None where there is none."""
    namespace, name = key
    try:
        document = await api.get(MACHINES, namespace, name)
    except NotFound:
        return None
    found = machine(document, macs)
    if not found.pending:
        return State(found, "none", opted_out=False), document
    opted_out = namespace in LEFT_ALONE or await _opted_out(api, namespace)
    return State(found, await _instance(api, key), opted_out), document


async def _opted_out(api: Api, namespace: str) -> bool:
    return bool(at(await api.get(NAMESPACES, None, namespace), "metadata", "labels", DEFAULTING) == DISABLED)


async def _instance(api: Api, key: Key) -> Instance:
    try:
        document = await api.get(INSTANCES, *key)
    except NotFound:
        return "none"
    ended = at(document, "status", "phase") in ("Succeeded", "Failed")
    return "going" if ended or at(document, "metadata", "deletionTimestamp") else "running"
