"""Fault injection: the settings that annotations and the ConfigMap `simulation` accept, and their effect on one VM.

Random choices are functions of the VM's name and the seed. The same names and seed give the same faults in each run.
"""

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
    """how many tries fail; None: all"""
    agent: bool = False
    seed: str = ""
    retry_seconds: float = 10.0
    """backoff after the first failed start of a VM; KubeVirt's is ten seconds"""
    node_lost_seconds: float = 30.0
    """how long a node may be not ready before its VMIs fail; KubeVirt waits five minutes"""
    dirty_memory: int = 0
    """bytes of memory that the guest dirties without end, which makes a live migration hard"""

    def outcome(self, identity: str, failures: int) -> str | None:
        """The fault of this try, or None. `identity` identifies the VM, `failures` counts its failed tries so far."""
        if self.fail_times is not None and failures >= self.fail_times:
            return None
        rate = self.fail_rate if self.fail_rate is not None else (1.0 if self.fail else 0.0)
        if hash_fraction(f"{self.seed}/{identity}/{failures}/fails") >= rate:
            return None
        return self.fail or "CrashLoopBackOff"

    def start_after(self, identity: str) -> float:
        """How many seconds a start takes: the setting and up to a quarter more as jitter."""
        return self.start_seconds * (1 + 0.25 * hash_fraction(f"{self.seed}/{identity}/start"))


def _number(parse: Callable[[str], float], maximum: float) -> Callable[[str], float]:
    def parse_bounded(text: str) -> float:
        value = parse(text)
        if not 0 <= value <= maximum:
            raise ValueError
        return value

    return parse_bounded


def _size(text: str) -> int:
    value = to_int(text)
    if not value:
        raise ValueError
    return value


_seconds = _number(float, 999_999)
_fault = {"": None, "none": None, **{fault: fault for fault in FAULTS}}.__getitem__
_boolean = {"true": True, "false": False}.__getitem__

SETTINGS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "start-seconds": ("start_seconds", _seconds, "a number of seconds"),
    "stop-seconds": ("stop_seconds", _seconds, "a number of seconds"),
    "fail-rate": ("fail_rate", _number(float, 1), "a number from 0 to 1"),
    "fail": ("fail", _fault, "one of " + ", ".join(FAULTS)),
    "fail-times": ("fail_times", _number(int, 2**31), "a whole number"),
    "agent": ("agent", lambda text: _boolean(text.lower()), "true or false"),
    "seed": ("seed", str, "any text"),
    "retry-seconds": ("retry_seconds", _seconds, "a number of seconds"),
    "node-lost-seconds": ("node_lost_seconds", _seconds, "a number of seconds"),
    "dirty-memory": ("dirty_memory", _size, "a quantity of memory such as 32Mi"),
}
"""annotation or key of the ConfigMap: field, parser, what is allowed"""


def parse_faults(layers: Iterable[Iterable[tuple[str, str]]]) -> tuple[Faults, tuple[str, ...]]:
    """The faults, where later layers take precedence, and a sentence for each invalid setting."""
    faults, problems = Faults(), []
    for layer in layers:
        for key, text in layer:
            if key not in SETTINGS:
                problems.append(f"{key}: unknown setting; the settings are {', '.join(SETTINGS)}")
                continue
            field, parse, allowed = SETTINGS[key]
            try:
                faults = replace(faults, **{field: parse(text)})
            except (ValueError, KeyError):
                problems.append(f"{key}: Invalid value: {text!r}: must be {allowed}")
    return faults, tuple(problems)
