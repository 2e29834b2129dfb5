"""Log lines about warm VMs. Each kind of change has one event name and a fixed set of fields."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from controllers.warmpool.warm_vm import WarmVM

LogEvent = Literal["VMCreating", "VMAssigning", "VMDeleting", "VMChecked", "VMStateChanged", "Retry", "Failure"]
"""`VMStateChanged`: a VM has a new state. `VMAssigning`: a claim gets a VM. `Failure`: retries do not resolve the
error."""


def log_event(
    log: logging.Logger,
    event: LogEvent,
    message: str,
    *,
    about: WarmVM | Mapping[str, str] | None = None,
    level: int = logging.INFO,
    **fields: Any,
) -> None:
    """`about` is a VM, or the names of a pool and a planned VM. The line omits empty fields. Never pass a template or
    the content of a claim: they may hold secrets."""
    if isinstance(about, WarmVM):
        about = {"pool": about.pool, "vm": about.name, "vm_uid": about.uid}
    extra = {"event": event, **(about or {}), **fields}
    log.log(level, "%s", message, extra={key: each for key, each in extra.items() if each not in (None, "")})
