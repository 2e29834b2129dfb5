"""Log lines about warm VMs: one event name for each kind of change, always with the same fields."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

from controllers.warmpool.warm_vm import WarmVM

LogEvent = Literal[
    "MachineCreating", "MachineAssigning", "MachineDeleting", "MachinePolled", "MachineMoved", "Retry", "Failure"
]
"""`MachineMoved` is a new state, `MachineAssigning` a claim that gets a VM, `Failure` an error that retries do not
resolve."""


def log_event(
    log: logging.Logger,
    event: LogEvent,
    message: str,
    *,
    about: WarmVM | Mapping[str, str] | None = None,
    level: int = logging.INFO,
    **fields: Any,
) -> None:
    """`about` is a VM, or the names of a pool and of a VM that does not exist. Empty fields are left out. Never pass a
    template or the content of a claim: they may hold secrets."""
    if isinstance(about, WarmVM):
        about = {"pool": about.pool, "vm": about.name, "vm_uid": about.uid}
    extra = {"event": event, **(about or {}), **fields}
    log.log(level, "%s", message, extra={key: each for key, each in extra.items() if each not in (None, "")})
