"""The log of a controller's decisions in the status of a pool or replica set."""

from typing import Annotated

from pydantic import Field

from poolhouse.api.kinds.meta import UID_LENGTH
from poolhouse.api.kinds.metav1 import StatusModel
from poolhouse.api.kinds.model import ATOMIC_LIST, Model, Time, Tuple

MAX_DECISIONS = 1000
MAX_VMS = 50
MAX_REASON, MAX_MESSAGE, MAX_CLIENT, MAX_NODE = 64, 300, 128, 253


class Decision(Model):
    """What happened to VMs at one time for one reason."""

    time: Time
    """Time of the decision."""
    reason: Annotated[str, Field(max_length=MAX_REASON)]
    """Reason of the event that reported it, such as SuccessfulDelete."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Why, for users."""
    set_by: Annotated[str, Field(max_length=MAX_CLIENT)] | None = None
    """The client that last set `spec.replicas`, for a scale-in, or `spec.template`, for an update. Its name is that of
    `metadata.managedFields`."""
    node: Annotated[str, Field(max_length=MAX_NODE)] | None = None
    """The node whose outage begins or ends, or that was drained."""
    vms: Annotated[Tuple[str], Field(max_length=MAX_VMS, json_schema_extra=ATOMIC_LIST)] = ()
    """The VMs, each as NAME/UID with the first 8 characters of the UID. A created VM has no UID here."""


class LoggedStatus(StatusModel):
    """A status with a log of decisions."""

    decisions: Annotated[Tuple[Decision], Field(max_length=MAX_DECISIONS, json_schema_extra=ATOMIC_LIST)] = ()
    """The last decisions about VMs, the oldest first: at most 12 KiB of deletions and 4 KiB of others. The controller
    writes them together with other changes of the status. `kubectl poolhouse why` shows them."""


def vm_reference(name: str, uid: str) -> str:
    return f"{name}/{uid[:UID_LENGTH]}" if uid else name
