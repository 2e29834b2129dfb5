"""Reasons of health checks and refusals that concern EC2 instances only."""

from poolhouse.api.apimachinery.reasons import Reason


class EC2Reason(Reason):
    EC2_DISABLED = "EC2Disabled", "The controllers have no EC2 region, so they manage no EC2 instances."
    NOT_RUNNING = "NotRunning", "The instance is not running."
    CLAIMED_BY_ANOTHER = "ClaimedByAnother", "The instance belongs to another claim."
