"""What is known of a VM that may need completion. Reads, and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apimachinery.unstructured import at
from defaulter.contract import MACPolicy, undefaulted_fields
from kinds.meta import UNDEFAULTED
from runtime.api import Api
from runtime.errors import NotFound
from runtime.resource import Key, Resource

Json = dict[str, Any]
Instance = Literal["none", "going", "running"]

MACHINES = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
INSTANCES = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A VirtualMachine, as far as completion is concerned."""

    namespace: str
    name: str
    generation: int
    """changes with the spec; what was refused once is worth another try then"""
    undefaulted: bool
    noted: bool
    """it says of itself that it is to be completed: it went through the webhook, or we have made it ourselves"""
    deleting: bool
    created: bool
    """by its own status it has an instance; when that changes, its instance is looked at again"""
    state: str
    since: str = ""
    """when it was made"""
    labels: tuple[tuple[str, str], ...] = ()
    macs: tuple[str, ...] = ()
    """of its interfaces, as they are written down"""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def pending(self) -> bool:
        return (self.undefaulted or self.noted) and not self.deleting


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class State:
    machine: Machine
    instance: Instance
    left_alone: str | None = None
    """why it is not ours to complete, whatever is undecided; see `registration`"""


def machine(document: Json, macs: MACPolicy = "deterministic") -> Machine:
    metadata = document["metadata"]
    # A VM without anything pending is the usual one. What it does is no news then, and makes no change to its view.
    empty, noted = bool(undefaulted_fields(document, macs=macs)), UNDEFAULTED in (metadata.get("annotations") or {})
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
        since=metadata.get("creationTimestamp", "") if pending else "",
        labels=tuple(sorted((metadata.get("labels") or {}).items())) if pending else (),
        macs=() if metadata.get("deletionTimestamp") else macs_of(document),
    )


def macs_of(document: Json) -> tuple[str, ...]:
    """In one spelling: two of an address are one."""
    interfaces = at(document, "spec", "template", "spec", "domain", "devices", "interfaces") or ()
    return tuple(str(mac).lower().replace("-", ":") for each in interfaces if (mac := each.get("macAddress")))


def namespace(document: Json) -> Namespace:
    return Namespace(document["metadata"]["name"], document["metadata"].get("labels") or {})


async def observe(api: Api, key: Key, macs: MACPolicy) -> tuple[Machine, Instance, Json] | None:
    """The VM as it is now, not as it was last heard of, its instance, and its document; None where there is none."""
    try:
        document = await api.get(MACHINES, *key)
    except NotFound:
        return None
    found = machine(document, macs)
    return found, await _instance(api, key) if found.undefaulted else "none", document


async def _instance(api: Api, key: Key) -> Instance:
    try:
        document = await api.get(INSTANCES, *key)
    except NotFound:
        return "none"
    ended = at(document, "status", "phase") in ("Succeeded", "Failed")
    return "going" if ended or at(document, "metadata", "deletionTimestamp") else "running"
