"""Lifecycle of a pool's VMs: when the pool may stop a VM, and what happens before."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.kinds.model import Count, Model, expected
from poolhouse.api.kinds.names import DNS_LABEL, matching

Transition = Literal["Terminating", "Restarting"]
HookResult = Literal["Continue", "Abandon"]

HookName = Annotated[
    str,
    matching(DNS_LABEL, 63, "a name of at most 63 lowercase letters, digits and '-', such as \"drain\""),
]


class LifecycleHook(Model):
    """Holds a VM before the pool stops it, so that another program can drain the VM first."""

    hints: ClassVar[Mapping[str, str]] = {
        "lifecycleTransition": "transition",
        "heartbeatTimeout": "timeoutSeconds",
        "timeout": "timeoutSeconds",
    }

    name: HookName
    """Name of the hook. The held VM has the annotation `hook.poolhouse.dev/NAME` with the time at which the hook times
    out."""
    transition: Transition
    """Terminating: before the pool deletes a VM, to scale in or to heal. Restarting: before the pool restarts a VM, to
    update it or to end its lifetime."""
    timeout_seconds: Annotated[Count, Field(ge=30, le=172_800)] = 3600
    """Seconds after which the hook ends by itself: half a minute to 48 hours."""
    default_result: HookResult = "Abandon"
    """The result of a hook that times out. The pool stops the VM after both. Continue: after the other hooks of the
    transition. Abandon: at once."""


class MaintenanceWindow(Model):
    """A time in which the pool may stop available VMs to update them or to end their lifetime."""

    hints: ClassVar[Mapping[str, str]] = {
        "cron": "schedule",
        "start": "schedule",
        "duration": "durationSeconds",
        "timezone": "timeZone",
    }

    schedule: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=expected('text like "0 2 * * 6"'))]
    """When the window opens, in cron format: minute, hour, day of month, month, day of week. `0 2 * * 6` is each
    Saturday at 02:00. A time that the change to summer time skips is due right after the change, and a time that occurs
    twice is due once, unless the minute or the hour begins with `*`: then the clock decides."""
    duration_seconds: Annotated[Count, Field(ge=60, le=604_800)]
    """Seconds after which the window closes: a minute to 7 days."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of the schedule, a name of the IANA database such as `Europe/Berlin`."""


class RetainedDisks(Model):
    """How long, and how many, retained disks stay."""

    hints: ClassVar[Mapping[str, str]] = {"ttl": "ttlSeconds", "maxCount": "max", "limit": "max"}

    ttl_seconds: Annotated[Count, Field(ge=60)] | None = None
    """Seconds after which the pool deletes a retained disk that nothing uses. Defaults to never."""
    max: Annotated[Count, Field(ge=1)] | None = None
    """Number of retained disks above which the pool deletes those that were retained first and that nothing uses.
    Disks of one VM are deleted together. Defaults to no limit."""


class FailureDomains(Model):
    """Zones that should not lose VMs at the same time."""

    topology_key: Annotated[str, Field(max_length=316)] = "topology.kubernetes.io/zone"
    """Label of nodes whose value is the zone of their VMs. Empty text: the pool ignores zones."""
