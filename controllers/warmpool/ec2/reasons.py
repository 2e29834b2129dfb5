"""Reasons of health checks and refusals that concern EC2 instances only."""

from poolhouse.api.apimachinery.reasons import Reason


class EC2Reason(Reason):
    EC2_DISABLED = "EC2Disabled", "The controllers have no EC2 region, so they manage no EC2 instances."
    NOT_RUNNING = "NotRunning", "The instance is not running."
    NO_ANSWER = "NoAnswer", "The agent in the instance did not answer."
    NOT_SERVING = "NotServing", "The agent's gRPC health service does not answer SERVING."
    APPLICATION_RUNNING = "ApplicationRunning", "The agent reports that the application runs."
    APPLICATION_SUCCEEDED = "ApplicationSucceeded", "The agent reports that the application has ended without error."
    APPLICATION_STARTING = "ApplicationStarting", "The agent is starting the application of the claim."
    APPLICATION_FAILED = "ApplicationFailed", "The application of the claim has failed."
    CLAIMED_BY_ANOTHER = "ClaimedByAnother", "The instance belongs to another claim."
