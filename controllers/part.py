"""What every package hands to `main`: what it reads, and the work that only a leader does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from runtime.informer import Informer


@dataclass(frozen=True)
class Part:
    name: str
    informers: tuple[Informer[Any], ...]
    """run by every replica, so that a new leader begins with full stores"""
    work: Callable[[], Coroutine[Any, Any, None]]
    """run by the leader, once the stores are full; runs until it is cancelled"""
