"""Lifecycle of a pool's VMs: what happens before the pool stops a VM."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kinds.model import Count, Model, expected

Transition = Literal["Terminating", "Restarting"]
HookResult = Literal["Continue", "Abandon"]

HookName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        json_schema_extra=expected("a name of at most 63 lowercase letters, digits and '-', such as \"drain\""),
    ),
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
    """Seconds after which the hook ends by itself. `poolhouse lifecycle heartbeat` starts them again. A hook ends 48
    hours, or 100 times these seconds, after the pool began to hold the VM, whichever is earlier."""
    default_result: HookResult = "Abandon"
    """The result of a hook that times out. The pool stops the VM after both. Continue: after the other hooks of the
    transition. Abandon: at once."""
