"""Parses the fault injection settings of annotations and the ConfigMap `simulation`, and applies them to a VM.

Random choices depend only on the VM's name and the seed, so that a run can be repeated.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.runtime.backoff import hash_fraction

FAULTS = ("ErrImagePull", "CrashLoopBackOff", "ErrorUnschedulable", "DataVolumeError", "Stuck")


@dataclass(frozen=True)
class Faults:
    start_seconds: float = 1.0
    stop_seconds: float = 0.5
    fail_rate: float | None = None
    fail: str | None = None
    fail_times: int | None = None
    """number of tries that fail; None: all"""
    crash_seconds: float | None = None
    """seconds of running after which the guest crashes; None: never"""
    agent: bool = False
    seed: str = ""
    retry_seconds: float = 10.0
    """backoff after the first failed start of a VM; ten seconds in KubeVirt"""
    node_lost_seconds: float = 30.0
    """seconds until the VMIs of a NotReady node fail; five minutes in KubeVirt"""
    service_seconds: float | None = None
    """seconds of running after which the guest's service stops; None: never"""
    reboot_seconds: float | None = None
    """seconds of running after which the guest reboots; None: never"""
    application: bool = True
    """whether the guest has an agent that runs applications"""
    application_seconds: float | None = None
    """seconds after which an application ends; None: never"""
    application_exit_code: int = 0
    snapshot_seconds: float = 0.5
    """duration of a simulated snapshot"""
    snapshot_fails: bool = False
    """whether the storage refuses snapshots"""
    launcher_pods: bool = False
    """whether the VMI has launcher Pods, which a drain evicts"""
    dirty_memory: int = 0
    """bytes of memory that the guest overwrites continuously, so that a live migration takes longer"""
    linux: bool = True
    """whether a guest without a disk image boots the built-in Linux"""

    def outcome(self, identity: str, failures: int) -> str | None:
        """Returns the fault of the next try, or None. `failures` is the number of failed tries of the VM `identity`."""
        if self.fail_times is not None and failures >= self.fail_times:
            return None
        rate = self.fail_rate if self.fail_rate is not None else (1.0 if self.fail else 0.0)
        if hash_fraction(f"{self.seed}/{identity}/{failures}/fails") >= rate:
            return None
        return self.fail or "CrashLoopBackOff"

    def start_after(self, identity: str) -> float:
        """Returns the seconds that a start takes: the setting, plus up to 25 % as jitter."""
        return self.start_seconds * (1 + 0.25 * hash_fraction(f"{self.seed}/{identity}/start"))


NO_FAULTS = Faults()


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


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_seconds = _number(float, 999_999)
_fault = {"": None, "none": None, **{fault: fault for fault in FAULTS}}.__getitem__

SETTINGS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "start-seconds": (_seconds, "a number of seconds"),
    "stop-seconds": (_seconds, "a number of seconds"),
    "fail-rate": (_number(float, 1), "a number from 0 to 1"),
    "fail": (_fault, "one of " + ", ".join(FAULTS)),
    "fail-times": (_number(int, 2**31), "a whole number"),
    "crash-seconds": (_seconds, "a number of seconds"),
    "agent": (_boolean, "true or false"),
    "seed": (str, "any text"),
    "retry-seconds": (_seconds, "a number of seconds"),
    "node-lost-seconds": (_seconds, "a number of seconds"),
    "service-seconds": (_seconds, "a number of seconds"),
    "reboot-seconds": (_seconds, "a number of seconds"),
    "application": (_boolean, "true or false"),
    "application-seconds": (_seconds, "a number of seconds"),
    "application-exit-code": (_number(int, 255), "a number from 0 to 255"),
    "snapshot-seconds": (_seconds, "a number of seconds"),
    "snapshot-fails": (_boolean, "true or false"),
    "launcher-pods": (_boolean, "true or false"),
    "dirty-memory": (_size, "a quantity of memory such as 32Mi"),
    "linux": (_boolean, "true or false"),
}
"""parser and allowed values of each annotation or ConfigMap key, which is named like its field"""


def parse_faults(layers: Iterable[Iterable[tuple[str, str]]]) -> tuple[Faults, tuple[str, ...]]:
    """Returns the faults and a message for each invalid setting. Later layers take precedence."""
    faults, problems = Faults(), []
    for layer in layers:
        for key, text in layer:
            if key not in SETTINGS:
                problems.append(f"{key}: unknown setting; the settings are {', '.join(SETTINGS)}")
                continue
            parse, allowed = SETTINGS[key]
            try:
                faults = replace(faults, **{key.replace("-", "_"): parse(text)})
            except (ValueError, KeyError):
                problems.append(f"{key}: Invalid value: {text!r}: must be {allowed}")
    return faults, tuple(problems)
