"""Guests with nothing behind them: what a domain would be by now is a function of the VMI and the time.

So nothing is lost when the engine ends, and nothing has to be found again when it starts.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from local.engine.domain import ABSENT, Domain
from local.engine.faults import Faults
from local.engine.phases import paused
from local.engine.terms import Terms
from local.engine.times import seconds_until
from local.engine.views import Instance

BANDWIDTH = 256 << 20
PAUSE_SECONDS = 0.3
"""for how long QEMU may stop a guest to copy what is left"""

PULL = "failed to pull and unpack image: failed to resolve reference: not found"
CROWDED = "0/2 nodes are available: 2 Insufficient memory."


def domain_of(instance: Instance, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """`identity` says who it is to chance, `failures` how many starts of its VM have failed before."""
    if instance.deleted is not None:
        return _ending(instance, faults, now)
    if instance.phase == "Running":
        return Domain("paused" if paused(instance) else "running", instance.node, agent=faults.agent)
    how = faults.outcome(identity, failures)
    took = faults.start_after(identity)
    if how in ("ErrorUnschedulable", "ErrImagePull"):
        return _troubled(instance, how, faults, took, now)
    left = seconds_until(instance.created + timedelta(seconds=took), now)
    if how == "Stuck":
        return Domain("starting", instance.node)
    if left > 0:
        return Domain("starting", instance.node, change_seconds=left)
    if how == "CrashLoopBackOff":
        return Domain("crashed", instance.node, reason="the guest crashed while it was starting (simulated)")
    return Domain("paused" if instance.start_paused else "running", instance.node, agent=faults.agent)


def failing(instance: Instance, faults: Faults, identity: str, failures: int, now: datetime) -> Domain:
    """What becomes of a start that is to fail, for who starts real guests: it is not tried. Absent where none is."""
    over = instance.deleted is not None or instance.final or instance.phase == "Running"
    if over or faults.outcome(identity, failures) is None:
        return ABSENT
    told = domain_of(instance, faults, identity, failures, now)
    return ABSENT if told.state in ("running", "paused") else told


def copy_seconds(memory: int, terms: Terms, dirty: int) -> float:
    """How long its memory takes to be copied; infinite where it writes over more than the last pause has time for."""
    speed = terms.bandwidth or BANDWIDTH
    return math.inf if dirty > speed * PAUSE_SECONDS and not terms.auto_converge else memory / speed


def _troubled(instance: Instance, how: str, faults: Faults, took: float, now: datetime) -> Domain:
    """KubeVirt goes on trying by itself here. Each try takes as long as a start does."""
    left = None
    if faults.fail_times is not None:
        left = seconds_until(instance.created + timedelta(seconds=took * faults.fail_times), now)
        if left == 0:
            return Domain("running", instance.node, agent=faults.agent)
    if how == "ErrImagePull":
        return Domain(trouble="ErrImagePull", reason=PULL, change_seconds=left)
    return Domain(
        trouble="Unschedulable", reason="0/2 nodes are available: 2 Insufficient memory.", change_seconds=left
    )


def _ending(instance: Instance, faults: Faults, now: datetime) -> Domain:
    if instance.deleted is None or instance.phase not in ("Scheduled", "Running"):
        return ABSENT
    stop = min(faults.stop_seconds, instance.grace_seconds)
    left = seconds_until(instance.deleted + timedelta(seconds=stop), now)
    return Domain("running", instance.node, change_seconds=left) if left > 0 else ABSENT
