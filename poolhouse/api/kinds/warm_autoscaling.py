"""`spec.autoscaling` of a warm pool, and its status: the number of waiting VMs that follows the demand."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from poolhouse.api.kinds.model import ATOMIC_LIST, Count, Model, Rule, Seconds, Time, Tuple, expected, has


class AutoscalingTarget(Model):
    """What the number of waiting VMs is for. Exactly one of `waitSeconds` and `spareRatio` is required."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.waitSeconds) != has(self.spareRatio)",
            message="give exactly one of waitSeconds and spareRatio",
            holds=lambda value: has(value, "waitSeconds") != has(value, "spareRatio"),
        ),
    )

    wait_seconds: Seconds | None = None
    """Seconds from the creation of a claim to its handover that the percentile of the claims must not exceed. The
    controller computes the number of VMs from the arrivals of claims and the time in which a VM becomes ready."""
    percentile: Annotated[int, Field(ge=50, le=99, json_schema_extra={"format": "int32"})] = 99
    """Percentage of the claims for which `waitSeconds` holds."""
    spare_ratio: (
        Annotated[
            str,
            Field(pattern="^[1-9][0-9]{0,3}%$", json_schema_extra=expected('a percentage from "1%" to "9999%"')),
        ]
        | None
    ) = None
    """Waiting VMs as a percentage of the claimed VMs, rounded up."""


class SizeSchedule(Model):
    """A period that recurs, in which at least `minReplicas` VMs wait."""

    schedule: Annotated[str, Field(min_length=1, max_length=128)]
    """Beginnings of the period as a cron expression: minute, hour, day of month, month, day of week. The controller
    creates the VMs early enough to be ready at this time."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """IANA time zone of the schedule, such as Europe/Berlin."""
    duration_seconds: Annotated[Count, Field(ge=60, le=604_800)]
    """Length of the period in seconds."""
    min_replicas: Count
    """Minimum number of waiting VMs in the period."""


class Autoscaling(Model):
    """Number of waiting VMs that follows the demand."""

    hints: ClassVar[Mapping[str, str]] = {
        "min": "minReplicas",
        "max": "maxReplicas",
        "maxIdleVMHours": "maxIdleVMHoursPerDay",
        "maxIdleVmHoursPerDay": "maxIdleVMHoursPerDay",
    }

    min_replicas: Count = 0
    """Minimum number of waiting VMs."""
    max_replicas: Annotated[Count, Field(ge=1)]
    """Maximum number of waiting VMs."""
    target: AutoscalingTarget
    """What the number of waiting VMs is for."""
    schedules: Annotated[Tuple[SizeSchedule], Field(max_length=32, json_schema_extra=ATOMIC_LIST)] = ()
    """Periods with a higher minimum. If periods overlap, the highest minimum applies. At most 32, because each decision
    finds the last beginning of all of them."""
    scale_down_delay_seconds: Annotated[Count, Field(le=86_400)] = 600
    """Seconds for which a size is kept after a smaller size would suffice."""
    max_idle_vm_hours_per_day: Annotated[Count, Field(ge=1)] | None = Field(default=None, alias="maxIdleVMHoursPerDay")
    """Maximum sum of the hours that VMs wait on one day (UTC), from their creation on. When the rest of the day allows
    only `minReplicas`, the pool has no more. Defaults to no limit."""


class SizeChange(Model):
    """A later change of the number of waiting VMs that is known already."""

    time: Time
    """Time of the change."""
    replicas: Count
    """Number of waiting VMs from then on, if the demand stays the same."""
    reason: str
    """Cause of the change, in CamelCase."""


class AutoscalingStatus(Model):
    """The last decision of the autoscaling. Its inputs are those of `decidedTime`."""

    desired_replicas: Count
    """Desired number of waiting VMs."""
    reason: str
    """What determined the number, in CamelCase."""
    message: str
    """The decision in one sentence."""
    decided_time: Time
    """Time of the decision."""
    claims_per_hour: str = ""
    """Rate of recent claims, as a decimal number."""
    boot_seconds: Count | None = None
    """Mean seconds from the creation of a VM until it can be claimed. Absent until the first VM was ready."""
    late_claims_percent: str = ""
    """Percentage of recent claims that waited longer than the target, as a decimal number."""
    idle_hours_today: str = ""
    """Hours that VMs have waited today (UTC), as a decimal number."""
    next_change: SizeChange | None = None
    """The next change that is known already."""
