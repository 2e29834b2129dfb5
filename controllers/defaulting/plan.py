"""Decides whether to fill the hardware of a VM now."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.defaulting.observe import DefaultingSnapshot

RUNNING_SECONDS = 4 * 3600.0
"""The VM's status announces its stop. If that event is missed, the VM is checked after this time."""


@dataclass(frozen=True)
class FillHardware:
    reason: str


@dataclass(frozen=True)
class RemoveAnnotation:
    """The annotation poolhouse.dev/undefaulted is no longer true."""

    reason: str


@dataclass(frozen=True)
class Wait:
    seconds: float | None
    """Time until the next check; None waits for a change."""
    reason: str


Action = FillHardware | RemoveAnnotation | Wait


def plan(snapshot: DefaultingSnapshot) -> Action:
    vm = snapshot.vm
    if vm.deleting:
        return Wait(None, "the VM is being deleted")
    if not vm.undefaulted:
        return _stop(vm.annotated, "all hardware fields are filled")
    if snapshot.ineligible is not None:
        return _stop(vm.annotated, snapshot.ineligible)
    if snapshot.vmi == "running":
        return Wait(RUNNING_SECONDS, "the VM runs, and a change of its hardware would require a restart")
    return FillHardware("the VM has no VMI" if snapshot.vmi == "absent" else "the VMI is finishing")


def _stop(annotated: bool, reason: str) -> Action:
    return RemoveAnnotation(reason) if annotated else Wait(None, reason)
