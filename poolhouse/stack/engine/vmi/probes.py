"""Probes of guests by the rules of the kubelet: parses them, and decides what a series of results means."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from poolhouse.api.apimachinery.unstructured import Json, at

Purpose = Literal["liveness", "readiness"]
HANDLERS = ("guestAgentPing", "exec", "httpGet", "tcpSocket")


@dataclass(frozen=True)
class Probe:
    purpose: Purpose
    handler: str
    """one of `HANDLERS`"""
    port: int = 0
    path: str = "/"
    scheme: str = "HTTP"
    host: str = ""
    """Host header of an HTTP request"""
    headers: tuple[tuple[str, str], ...] = ()
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True)
class ProbeState:
    """The meaning of the results until now."""

    passing: bool
    last: bool | None = None
    run: int = 0
    """number of equal results in a row"""

    def after(self, result: bool, probe: Probe) -> "ProbeState":
        """The state after one more result."""
        run = self.run + 1 if result == self.last else 1
        needed = probe.success_threshold if result else probe.failure_threshold
        found = replace(self, last=result, run=run)
        return replace(found, passing=result) if run >= needed else found


@dataclass(frozen=True)
class ProbeResults:
    """What the probes of a VMI have found. Without a probe, a VMI is alive and ready."""

    alive: bool = True
    ready: bool = True
    problem: str = ""
    """why the last failing probe failed"""


UNPROBED = ProbeResults()


def read_probes(spec: Json) -> Iterator[Probe]:
    """The probes of a VMI spec. A named port is unknown, because a VMI declares ports by number."""
    purposes: tuple[tuple[Purpose, str], ...] = (("liveness", "livenessProbe"), ("readiness", "readinessProbe"))
    for purpose, field in purposes:
        probe = spec.get(field)
        handler = (
            next((each for each in HANDLERS if probe.get(each) is not None), None) if isinstance(probe, dict) else None
        )
        if handler is None or not isinstance(probe, dict):
            continue
        action = probe[handler] if isinstance(probe[handler], dict) else {}
        yield Probe(
            purpose,
            handler,
            port=_port(action.get("port"), spec),
            path=str(action.get("path") or "/"),
            scheme=str(action.get("scheme") or "HTTP"),
            host=str(action.get("host") or ""),
            headers=tuple((str(h.get("name")), str(h.get("value") or "")) for h in action.get("httpHeaders") or ()),
            initial_delay_seconds=_number(probe, "initialDelaySeconds", 0, least=0),
            period_seconds=_number(probe, "periodSeconds", 10),
            timeout_seconds=_number(probe, "timeoutSeconds", 1),
            success_threshold=_number(probe, "successThreshold", 1) if purpose == "readiness" else 1,
            failure_threshold=_number(probe, "failureThreshold", 3),
        )


def _number(probe: Json, name: str, default: int, *, least: int = 1) -> int:
    value = probe.get(name)
    return value if isinstance(value, int) and value >= least else default


def _port(value: Any, spec: Json) -> int:
    """The number of a port, which may be the name of a port of an interface. 0 for an unknown name."""
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    for interface in at(spec, "domain", "devices", "interfaces") or ():
        for port in interface.get("ports") or ():
            if port.get("name") == value and isinstance(port.get("port"), int):
                return int(port["port"])
    return 0
