"""Reports VMs whose hardware another webhook has changed, and which have started before it could be chosen again."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from controllers.shared.vm_reasons import VMEvent
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.events import EventRecorder, object_reference
from poolhouse.runtime.metrics import PREFIX

ReportKept = Callable[[Json, str], None]
"""reports a VM that keeps its hardware, and why"""


class HardwareReports:
    def __init__(self, events: EventRecorder, registry: CollectorRegistry | None = None) -> None:
        self._events = events
        self._kept = Counter(
            PREFIX + "vm_hardware_kept",
            "VMs of pools and warm pools whose hardware another webhook has changed, or that got none, and that keep "
            "it because it could not be chosen again before they started.",
            registry=registry,
        )

    def kept(self, vm: Json, why: str) -> None:
        note = (
            f"the VM keeps hardware that Poolhouse did not choose: {why}. Another webhook has changed the VM after the "
            "webhook of Poolhouse, or this webhook was not called. Empty fields are filled when the VM stops"
        )
        self._kept.inc()
        self._events.emit(object_reference(vm), "Warning", VMEvent.HARDWARE_KEPT, note, action="CompleteHardware")
