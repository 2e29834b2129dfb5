"""Guests with nothing behind them: what a domain would be by now is a function of the VMI and the time.

So nothing is lost when the engine ends, and nothing has to be found again when it starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from local.engine.datavolume.phases import ImportProgress
from local.engine.domain import ABSENT, Domain
from local.engine.fault_injection import Faults
from local.engine.migration.settings import MigrationSettings
from local.engine.objects import PVC, VMI, DataVolume
from local.engine.times import seconds_until
from local.engine.vmi.phases import is_paused
from runtime.resource import Key

BANDWIDTH = 256 << 20
PAUSE_SECONDS = 0.3
"""for how long QEMU may stop a guest to copy what is left"""

PULL = "failed to pull and unpack image: failed to resolve reference: not found"
IMPORT_SECONDS = 2.0
"""how long one simulated try to import takes before it fails"""


def domain_of(vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """`identity` says who it is to chance, `failures` how many starts of its VM have failed before."""
    if vmi.deleted is not None:
        return _ending(vmi, faults, now)
    if vmi.phase == "Running":
        return Domain("paused" if is_paused(vmi) else "running", vmi.node, agent=faults.agent)
    how = faults.outcome(identity, failures)
    took = faults.start_after(identity)
    if how in ("ErrorUnschedulable", "ErrImagePull"):
        return _troubled(vmi, how, faults, took, now)
    left = seconds_until(vmi.created + timedelta(seconds=took), now)
    if how == "Stuck":
        return Domain("starting", vmi.node)
    if left > 0:
        return Domain("starting", vmi.node, change_seconds=left)
    if how == "CrashLoopBackOff":
        return Domain("crashed", vmi.node, reason="the guest crashed while it was starting (simulated)")
    return Domain("paused" if vmi.start_paused else "running", vmi.node, agent=faults.agent)


def failing(vmi: VMI, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """What becomes of a start that is to fail, for who starts real guests: it is not tried. Absent where none is."""
    over = vmi.deleted is not None or vmi.final or vmi.phase == "Running"
    if over or faults.outcome(identity, failures) is None:
        return ABSENT
    told = domain_of(vmi, faults, identity, failures, now)
    return ABSENT if told.state in ("running", "paused") else told


def copy_seconds(memory: int, settings: MigrationSettings, dirty: int) -> float:
    """How long its memory takes to be copied; infinite where it writes over more than the last pause has time for."""
    speed = settings.bandwidth or BANDWIDTH
    return math.inf if dirty > speed * PAUSE_SECONDS and not settings.auto_converge else memory / speed


def _troubled(vmi: VMI, how: str, faults: Faults, took: float, now: datetime) -> Domain:
    """KubeVirt goes on trying by itself here. Each try takes as long as a start does."""
    left = None
    if faults.fail_times is not None:
        left = seconds_until(vmi.created + timedelta(seconds=took * faults.fail_times), now)
        if left == 0:
            return Domain("running", vmi.node, agent=faults.agent)
    if how == "ErrImagePull":
        return Domain(trouble="ErrImagePull", reason=PULL, change_seconds=left)
    return Domain(
        trouble="Unschedulable", reason="0/2 nodes are available: 2 Insufficient memory.", change_seconds=left
    )


def _ending(vmi: VMI, faults: Faults, now: datetime) -> Domain:
    if vmi.deleted is None or vmi.phase not in ("Scheduled", "Running"):
        return ABSENT
    stop = min(faults.stop_seconds, vmi.grace_seconds)
    left = seconds_until(vmi.deleted + timedelta(seconds=stop), now)
    return Domain("running", vmi.node, change_seconds=left) if left > 0 else ABSENT


class SimulatedImporter:
    """Disks of simulated VMs: there at once, unless they are to fail."""

    def subscribe(self, changed: Callable[[Key], None]) -> None:
        """Nothing changes but with time."""

    def progress(self, disk: DataVolume, pvc: PVC | None, faults: Faults, now: datetime) -> ImportProgress:
        done = ImportProgress("done", content="simulated")
        if pvc is not None or faults.fail != "DataVolumeError":
            return done
        tries = int((now - disk.created).total_seconds() / IMPORT_SECONDS) + 1
        if faults.outcome(disk.uid, 0) is None or (faults.fail_times is not None and tries > faults.fail_times):
            return done
        reason = "Unable to connect to http data source: the server answered 404 (simulated)"
        if faults.fail_times is None:
            return ImportProgress("failed", reason=reason, failures=1)
        next_try = seconds_until(disk.created + timedelta(seconds=IMPORT_SECONDS * tries), now)
        return ImportProgress("failed", reason=reason, failures=tries, requeue_seconds=next_try + 0.01)

    async def fill(self, disk: DataVolume, pvc: PVC) -> None: ...

    async def provide(self, pvc: PVC) -> str:
        return "blank"

    async def drop(self, pvc: PVC) -> None: ...

    async def sweep(self, pvcs: list[PVC]) -> None: ...
