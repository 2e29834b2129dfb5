"""Applies changes of a VM's template to its running VMI, by the rules of virt-controller.

With `vmRolloutStrategy: LiveUpdate`, KubeVirt writes CPU sockets, guest memory and what chooses the node into the VMI,
or sets the condition RestartRequired with one of these messages. A VMI whose sockets or memory differ from what its
guest has gets a condition, and a live migration brings the difference to the guest.
"""

import copy
from collections.abc import Collection, Iterator
from typing import Literal

from poolhouse.api.apimachinery.merge_patch import merge_patch
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.live_updates import MEMORY_BLOCK, PLACEMENT, RunningGuest
from poolhouse.stack.engine.objects import VM, VMI
from poolhouse.stack.engine.resources import condition, has_condition

Hotplug = Literal["cpu", "memory"]
CPU_CHANGE, MEMORY_CHANGE = "HotVCPUChange", "HotMemoryChange"
HOTPLUG_RATIO = 4
"""KubeVirt's default of `maxHotplugRatio`: how many times the sockets and the memory may become what they are at the
start"""
LEAST_MEMORY = 1 << 30
"""guest memory from which KubeVirt can hotplug memory"""
NOT_LIVE = "a non-live-updatable field was changed in the template spec"
MORE_SOCKETS = "CPU sockets updated in template spec to a value higher than what's available"
FEWER_SOCKETS = "Reduction of CPU socket count requires a restart"
NO_MEMORY_HOTPLUG = "memory updated in template spec. Memory-hotplug is not available for this VM configuration"
LESS_THAN_AT_START = "memory updated in template spec to a value lower than what the VM started with"
MORE_MEMORY = "memory updated in template spec to a value higher than what's available"
NOT_ALIGNED = "memory hotplug not supported, Guest memory must be 2Mi aligned"


def prepare(vmi: Json, hotplugs: Collection[Hotplug], *, live: bool) -> Json:
    """A new VMI with the limits of its later changes, and with the CPUs and the memory that its guest gets."""
    document = copy.deepcopy(vmi)
    domain, status = document["spec"]["domain"], document.setdefault("status", {})
    cpu, memory = domain["cpu"], domain["memory"]
    topology = {part: int(cpu.get(part) or 1) for part in ("sockets", "cores", "threads")}
    status["currentCPUTopology"] = topology
    amd64 = document["spec"].get("architecture") == "amd64"
    if live and amd64 and "cpu" in hotplugs and not cpu.get("maxSockets"):
        cpu["maxSockets"] = topology["sockets"] * HOTPLUG_RATIO
    if guest := memory.get("guest"):
        status["memory"] = dict.fromkeys(("guestAtBoot", "guestRequested", "guestCurrent"), guest)
        size = to_int(guest) or 0
        able = live and amd64 and "memory" in hotplugs and size >= LEAST_MEMORY and size % MEMORY_BLOCK == 0
        if able and memory.get("maxGuest") is None:
            memory["maxGuest"] = str(size * HOTPLUG_RATIO)
    return document


def why_restart(vm: VM, vmi: VMI, *, live: bool) -> str:
    """The message of the condition RestartRequired for these fields; "" without it."""
    if not live:
        return NOT_LIVE if any(_changes(vm, vmi)) else ""
    return next(filter(None, (_restart_message(each, vm, vmi.guest) for each in _changes(vm, vmi))), "")


def needs_update(vm: VM, vmi: VMI, *, live: bool) -> bool:
    """Whether the VMI must get fields of its VM now. Changes wait while another one is on its way to the guest."""
    busy = any(has_condition(vmi.conditions, each) for each in (CPU_CHANGE, MEMORY_CHANGE)) or _migrates(vmi)
    return live and not busy and any(not _restart_message(each, vm, vmi.guest) for each in _changes(vm, vmi))


def plan_vmi(template: Json, vmi: Json, vm: VM, view: VMI) -> Json:
    """The merge patch of the VMI's spec."""
    wanted = copy.deepcopy(vmi)
    for each in _changes(vm, view):
        if _restart_message(each, vm, view.guest):
            continue
        if each == "sockets":
            wanted["domain"]["cpu"]["sockets"] = template["domain"]["cpu"]["sockets"]
        elif each == "memory":
            wanted["domain"]["memory"]["guest"] = template["domain"]["memory"]["guest"]
        else:
            wanted = {name: value for name, value in wanted.items() if name not in PLACEMENT}
            wanted |= {name: template[name] for name in PLACEMENT if template.get(name) is not None}
    return merge_patch(vmi, wanted)


def conditions(vmi: VMI) -> Iterator[Json]:
    """The conditions of a running VMI whose guest does not have the CPUs and the memory of its spec yet."""
    spec, shown = vmi.guest.spec, vmi.guest.shown
    for kind, asked, has in ((CPU_CHANGE, spec.sockets, shown.sockets), (MEMORY_CHANGE, spec.memory, shown.memory)):
        if asked is not None and has is not None and asked != has:
            yield condition(kind, True)


def applied(vmi: VMI) -> Json:
    """The part of the VMI's status that says that its guest has the CPUs and the memory of its spec."""
    spec, changes = vmi.guest.spec, list(conditions(vmi))
    found: Json = {}
    if has_condition(changes, CPU_CHANGE):
        found["currentCPUTopology"] = {"sockets": spec.sockets}
    if has_condition(changes, MEMORY_CHANGE):
        found["memory"] = dict.fromkeys(("guestRequested", "guestCurrent"), str(spec.memory))
    return found


def _changes(vm: VM, vmi: VMI) -> Iterator[str]:
    """The names of the fields that the VM has and its VMI does not."""
    wanted, has = vm.live, vmi.guest.spec
    if wanted.sockets is not None and wanted.sockets != has.sockets:
        yield "sockets"
    if wanted.memory is not None and wanted.memory != has.memory:
        yield "memory"
    if wanted.placement != has.placement:
        yield "placement"


def _restart_message(name: str, vm: VM, guest: RunningGuest) -> str:
    if name == "sockets":
        now, wanted = guest.spec.sockets or 1, vm.live.sockets or 1
        if wanted > (guest.max_sockets or 0):
            return MORE_SOCKETS
        return FEWER_SOCKETS if wanted < now else ""
    return _memory_message(vm.live.memory or 0, guest) if name == "memory" else ""


def _memory_message(wanted: int, guest: RunningGuest) -> str:
    if guest.max_memory is None:
        return NO_MEMORY_HOTPLUG
    if wanted % MEMORY_BLOCK:
        return NOT_ALIGNED
    if guest.boot_memory is not None and wanted < guest.boot_memory:
        return LESS_THAN_AT_START
    return MORE_MEMORY if wanted > guest.max_memory else ""


def _migrates(vmi: VMI) -> bool:
    state = vmi.status.get("migrationState") or {}
    return bool(state) and not (state.get("completed") or state.get("failed"))
