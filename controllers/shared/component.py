"""What every package hands to `main`: what it reads, what it answers, and the work that only a leader does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.informer import Informer
from service.json_api import Endpoint


@dataclass(frozen=True)
class Component:
    name: str
    informers: tuple[Informer[Any], ...]
    """run by every replica, so that a new leader begins with full stores"""
    work: Callable[[], Coroutine[Any, Any, None]]
    """run by the leader, once the stores are full; runs until it is cancelled"""
    answers: Mapping[str, Endpoint] = field(default_factory=dict)
    """questions that every replica answers over HTTP, by path"""
