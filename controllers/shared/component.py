"""The interface between a package of controllers and `main`: informers, work and HTTP endpoints."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from poolhouse.runtime.informer import Informer
from poolhouse.service.json_api import Endpoint


@dataclass(frozen=True)
class Component:
    name: str
    informers: tuple[Informer[Any], ...]
    """Every replica runs the informers, so that a new leader starts with full stores."""
    work: Callable[[], Coroutine[Any, Any, None]]
    """The leader runs the coroutine once the stores are full, until it is cancelled."""
    answers: Mapping[str, Endpoint] = field(default_factory=dict)
    """HTTP endpoints of every replica, by path."""
