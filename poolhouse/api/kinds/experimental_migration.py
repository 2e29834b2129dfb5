"""The experimental migration settings of KubeVirt 1.9 and later, with KubeVirt's names, types and bounds.

KubeVirt calls them an alpha API, which it will remove. `poolhouse.api.migrationpolicies.effective_settings` knows which
releases and feature gates have them.
"""

from typing import Annotated, Literal

from pydantic import Field

from poolhouse.api.kinds.model import Count, Int64, Model, expected

Factor = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,3})?$",
        json_schema_extra=expected('a number in quotes with at most three decimal places, such as "0.4"'),
    ),
]
Seconds = Annotated[Int64, Field(ge=0)]


class StallDetector(Model):
    """Decides when a migration makes no progress, and what ends it then."""

    stall_margin: Annotated[Int64 | None, Field(ge=0, le=100)] = None
    """Percentage by which the remaining memory must fall below its former minimum, so that the migration makes
    progress. KubeVirt's default: 4."""
    ewma_alpha: Factor | None = None
    """Weight of the newest sample in the average of the bandwidth, greater than 0 and at most 1. KubeVirt's default:
    "0.4"."""
    stall_progress_timeout: Seconds | None = None
    """Seconds over which progress is judged. KubeVirt's default: 40."""
    switchover_timeout: Seconds | None = None
    """Seconds after which a switchover that has begun is aborted. KubeVirt's default: 60."""
    precopy_possible_factor: Factor | None = None
    """Factor, at least 1, by which the expected downtime may exceed `maxDowntimeMs` at a switchover. KubeVirt's
    default: "1.5"."""
    patience_window_decay_factor: Factor | None = None
    """Factor, at most 1, by which KubeVirt's patience shrinks each time. KubeVirt's default: "0.5"."""
    search_local_minima: bool | None = None
    """Whether a switchover waits until little memory remains. KubeVirt's default: true."""
    completion_timeout_factor: Factor | None = None
    """Factor, at least 1, by which a switchover may exceed the timeout of the migration. KubeVirt's default: "2"."""


class DowntimeTuning(Model):
    """Raises the downtime limit of a migration step by step to `maxDowntimeMs`."""

    initial_ms: Annotated[Int64 | None, Field(ge=1)] = None
    """First limit in milliseconds. KubeVirt's default: 150."""
    steps: Annotated[Count | None, Field(ge=1)] = None
    """Number of equal steps. KubeVirt's default: 7."""
    start_after_iteration: Annotated[Int64 | None, Field(ge=1)] = None
    """Number of copies of the memory after which the limit rises. KubeVirt's default: 3."""
    cooldown_seconds: Annotated[Count | None, Field(ge=1)] = None
    """Seconds between two steps. KubeVirt's default: 10."""


class ExperimentalMigration(Model):
    """Experimental settings. KubeVirt may remove them in any release."""

    stall_detector: StallDetector | None = None
    """Ends migrations that make no progress. Needs KubeVirt 1.9 and its feature gate MigrationStallDetection."""
    downtime_tuning: DowntimeTuning | None = None
    """Raises the downtime limit step by step. Needs KubeVirt 1.10 and its feature gate MigrationDowntimeTuning, and
    excludes stallDetector."""
    compression: Literal["none", "zstd"] | None = None
    """Compression of the guest's memory on its way. Needs KubeVirt 1.9. KubeVirt's default: none."""
