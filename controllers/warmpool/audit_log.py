"""The document's log lines: what happened to a machine, each under a name of its own and with the same facts."""

from __future__ import annotations

import logging
from typing import Any, Literal

from controllers.warmpool.warm_vm import WarmVM

Happening = Literal[
    "MachineCreating",
    "MachineAssigning",
    "MachineDeleting",
    "MachinePolled",
    "MachineMoved",
    "Retry",
    "Failure",
]
"""creating for a pool, assigning to a claim, deleting, polling its state, a new state, a retry, an error that does not
pass by itself"""


def log_event(
    log: logging.Logger,
    what: Happening,
    sentence: str,
    *,
    machine: WarmVM | None = None,
    level: int = logging.INFO,
    **facts: Any,
) -> None:
    """Facts that are None or empty are left out. Never what could be a secret: no template, no claim's content."""
    about: dict[str, Any] = {"event": what}
    if machine is not None:
        about |= {"pool": machine.pool, "vm": machine.name, "vm_uid": machine.uid}
    extra = {key: value for key, value in (about | facts).items() if value not in (None, "")}
    log.log(level, "%s", sentence, extra=extra)
