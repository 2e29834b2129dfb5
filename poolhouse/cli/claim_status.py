"""Says in a line what the status of a claim says."""

import re

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.resource_types import CLAIM_PHASES

FINISHED = CLAIM_PHASES.terminal
STEPS = {
    "queuedMs": "in the queue",
    "bindMs": "to assign the VM",
    "activateMs": "to start or resume it",
    "checkMs": "to check it",
}
"""the steps of a claim in its `status.timings`, in their order"""


def describe(name: str, status: Json, told: str = "", *, yours: bool = True) -> str:
    """The state of the claim, with the reason unless `told` has it already. `yours`: whether its user reads it."""
    phase = status.get("phase") or "Pending"
    if phase != "Ready":
        place = f", position {status['queuePosition']} in the queue" if status.get("queuePosition") else ""
        why = reason(status)
        why = "" if why in told else why.removeprefix(f"{phase}: ")
        return f"{name}: {phase}{place}{': ' + why if why else ''}"
    timings = status.get("timings") or {}
    steps = [f"{timings[field]} ms {words}" for field, words in STEPS.items() if timings.get(field)]
    took = f" after {timings['totalMs']} ms" if timings.get("totalMs") is not None else ""
    took += f" ({', '.join(steps)})" if len(steps) > 1 else ""
    where = f" at {', '.join(status['addresses'])}" if status.get("addresses") else ""
    until = f", until {to_the_second(status['expiresAt'])}" if status.get("expiresAt") else ""
    whose, now = "yours" if yours else "in use", f"; {why}" if (why := reason(status)) else ""
    return f"{name}: {vm_of(status)} is {whose}{where}: {status.get('launchType')}{took}{until}{now}"


def vm_of(status: Json) -> str | None:
    """The name of the claim's VM, or the ID of its EC2 instance."""
    return (status.get("vmRef") or {}).get("name") or (status.get("instanceRef") or {}).get("id")


def to_the_second(time: str) -> str:
    """Removes the microseconds from a time."""
    return re.sub(r"\.\d+Z$", "Z", time)


def reason(status: Json) -> str:
    """Returns why the claim has no VM, or why its VM is not ready."""
    false = {c["type"]: c for c in status.get("conditions") or () if c["status"] == "False"}
    found = false.get("Bound") or false.get("Ready")
    return f"{found['reason']}: {found['message']}" if found else ""
