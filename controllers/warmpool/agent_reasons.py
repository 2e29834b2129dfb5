"""Reasons of health checks that ask the agent in a VM or an EC2 instance."""

from poolhouse.api.apimachinery.reasons import Reason


class AgentReason(Reason):
    NO_ANSWER = "NoAnswer", "The agent in the VM or the instance did not answer."
    INVALID_ANSWER = "InvalidAnswer", "The agent's answer cannot be read."
    NOT_SERVING = "NotServing", "The agent's gRPC health service does not answer SERVING."
    NO_AGENT = "NoAgent", "The VM was made before its pool had `spec.agent`, so nothing in it starts applications."
    POD_NOT_UPDATED = (
        "PodNotUpdated",
        "The Pod does not name the claim yet, so its application is not launched: the virtual node could not write it.",
    )
    NO_CERTIFICATES = (
        "NoCertificates",
        "The Secret in `spec.agent.tls` of the pool, or that with Poolhouse's authority, cannot be read.",
    )
    LAUNCH_REFUSED = "LaunchRefused", "The agent refuses to start the application; the message is the agent's."
    APPLICATION_LAUNCHED = "ApplicationLaunched", "The agent has accepted the application of the claim."
    APPLICATION_RUNNING = "ApplicationRunning", "The agent reports that the application runs."
    APPLICATION_SUCCEEDED = "ApplicationSucceeded", "The agent reports that the application has ended without error."
    APPLICATION_STARTING = "ApplicationStarting", "The agent is starting the application of the claim."
    APPLICATION_LOST = (
        "ApplicationLost",
        "The agent has nothing of the application any more: its guest, or the agent itself, has started again.",
    )
    APPLICATION_FAILED = "ApplicationFailed", "The application of the claim has failed."
