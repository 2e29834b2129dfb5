"""Faults that are simulated: what may be asked for, and what it means for one VM.

Chance is a function of stable identities: asking twice gives the same answer, and a seed repeats a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from apimachinery.quantity import to_int
from runtime.backoff import hash_fraction

FAULTS = ("ErrImagePull", "CrashLoopBackOff", "ErrorUnschedulable", "DataVolumeError", "Stuck")


@dataclass(frozen=True)
class Faults:
    start_seconds: float = 1.0
    stop_seconds: float = 0.5
    fail_rate: float | None = None
    fail: str | None = None
    fail_times: int | None = None
    """only so many tries fail; None: all"""
    agent: bool = False
    seed: str = ""
    retry_seconds: float = 10.0
    """the pause after a VM's first failed start; KubeVirt's is ten seconds"""
    node_lost_seconds: float = 30.0
    """how long a node may be away before its VMIs fail; KubeVirt's is five minutes"""
    dirty_memory: int = 0
    """bytes that the guest writes over and over, as fast as it can: what makes a live migration hard"""

    def outcome(self, identity: str, failures: int) -> str | None:
        """How this try fails, or None. `identity` says who tries, `failures` how many tries of it have failed."""
        if self.fail_times is not None and failures >= self.fail_times:
            return None
        rate = self.fail_rate if self.fail_rate is not None else (1.0 if self.fail else 0.0)
        if hash_fraction(f"{self.seed}/{identity}/{failures}/fails") >= rate:
            return None
        return self.fail or "CrashLoopBackOff"

    def start_after(self, identity: str) -> float:
        """Seconds that a start takes: what was asked for and up to a quarter more, so that not all come at once."""
        return self.start_seconds * (1 + 0.25 * hash_fraction(f"{self.seed}/{identity}/start"))


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise ValueError
    return value


def _rate(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _kind(text: str) -> str | None:
    if text in ("", "none"):
        return None
    if text not in FAULTS:
        raise ValueError
    return text


def _size(text: str) -> int:
    value = to_int(text)
    if not value:
        raise ValueError
    return value


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


KEYS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "start-seconds": ("start_seconds", _seconds, "a number of seconds"),
    "stop-seconds": ("stop_seconds", _seconds, "a number of seconds"),
    "fail-rate": ("fail_rate", _rate, "a share from 0 to 1"),
    "fail": ("fail", _kind, "one of " + ", ".join(FAULTS)),
    "fail-times": ("fail_times", _count, "a whole number"),
    "agent": ("agent", _truth, "true or false"),
    "seed": ("seed", str, "any text"),
    "retry-seconds": ("retry_seconds", _seconds, "a number of seconds"),
    "node-lost-seconds": ("node_lost_seconds", _seconds, "a number of seconds"),
    "dirty-memory": ("dirty_memory", _size, "a quantity of memory such as 32Mi"),
}
"""annotation or key of the ConfigMap: field, codec, what a right value is"""


def parse_faults(layers: Iterable[Iterable[tuple[str, str]]]) -> tuple[Faults, tuple[str, ...]]:
    """What was asked for, later layers over earlier ones, and a sentence for everything that is not understood."""
    faults, problems = Faults(), []
    for layer in layers:
        for key, text in layer:
            if key not in KEYS:
                problems.append(f"{key}: no such setting; there are {', '.join(KEYS)}")
                continue
            field, codec, right = KEYS[key]
            try:
                faults = replace(faults, **{field: codec(text)})
            except (ValueError, KeyError):
                problems.append(f"{key}: {text!r} is not {right}")
    return faults, tuple(problems)
