"""Reads the logs of Pods of the virtual node from the agents of their VMs."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.shared.pace import Pace
from controllers.shared.vmi import parse_vmi_with_pods
from controllers.virtualnode.pod import TERMINAL, PodClaim
from controllers.warmpool.agent import AgentEndpoint, LogsRefused
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM, parse_warm_vm
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PODS, VMIS, VMS
from poolhouse.service.held_counter import HeldCounter
from poolhouse.service.strict_json import quote


class NoLogs(Exception):
    """Why there are no logs."""


def log_request(query: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """The request to an agent for the query of `kubectl logs`, without the Pod and the container. Raises ValueError."""
    found: dict[str, Any] = {name: _truth(query, name) for name in ("follow", "previous", "timestamps")}
    for name in ("tailLines", "limitBytes"):
        if name in query:
            found[name] = _number(query, name)
    since = _since(query, now)
    if query.get("stream", "All") != "All":
        raise ValueError("stream: the agent of a VM keeps all output in one log; must be All")
    if since is not None:
        found["sinceTime"] = {"seconds": int(since.timestamp()), "nanos": since.microsecond * 1000}
    return found


def _since(query: Mapping[str, str], now: datetime) -> datetime | None:
    if "sinceSeconds" in query:
        seconds = _number(query, "sinceSeconds")
        try:
            return now - timedelta(seconds=seconds)
        except OverflowError:
            raise ValueError(f"sinceSeconds: {seconds} seconds are more than the calendar has") from None
    if not (text := query.get("sinceTime")):
        return None
    try:
        return parse_time(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"sinceTime: must be a time such as 2026-01-01T12:00:00Z, not {quote(text)}") from None


def _truth(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{name}: must be true or false, not {quote(text)}")
    return text in ("true", "1")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query[name]
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(f"{name}: must be a number of at least 0, not {quote(text)}")
    return int(text)


def _no_logs(vm: str, refused: LogsRefused) -> NoLogs:
    match refused.code:
        case "UNIMPLEMENTED":
            return NoLogs(f"the agent of VM {vm} offers no logs")
        case "NOT_FOUND":
            return NoLogs(str(refused))
    return NoLogs(f"the agent of VM {vm}: {refused.code}: {refused}")


def _why_no_vm(pod: str, phase: str | None) -> str:
    if phase in TERMINAL:
        return (
            f"Pod {pod} has ended, and its VM is deleted with the logs; kubectl describe pod {pod} shows how its"
            " containers ended, with the last lines of those that failed"
        )
    return f"Pod {pod} has no VM now, so that there are no logs; the events of the Pod say why"


MESSAGE_SECONDS, BYTES_PER_SECOND = 0.001, 16 * 1024 * 1024
"""of the logs of a namespace"""
STREAMS_PER_NAMESPACE = 64


@dataclass
class LogStreams:
    """The logs that clients are reading, by namespace. Nothing else limits how many `kubectl logs` a user starts."""

    _streams: HeldCounter[str] = field(default_factory=HeldCounter)

    @contextmanager
    def open(self, namespace: str) -> Iterator[None]:
        """Around a stream. Raises NoLogs if the namespace has too many."""
        if self._streams[namespace] >= STREAMS_PER_NAMESPACE:
            why = f"{STREAMS_PER_NAMESPACE} logs of Pods in namespace {namespace} are being read, which is the most"
            raise NoLogs(f"{why}; end one of them")
        with self._streams.one_more(namespace):
            yield


@dataclass(frozen=True)
class LogReader:
    api: Api
    node: str
    claims_of: Callable[[str], list[PodClaim | None]]
    """the claims of a Pod, by its UID"""
    endpoint: Callable[[WarmVM], Awaitable[AgentEndpoint | Health]]
    """the endpoint of a VM's agent, or why it cannot be asked"""
    read_agent: Callable[[AgentEndpoint, dict[str, Any]], AsyncIterator[bytes]]
    """the log from an agent"""
    streams: LogStreams = field(default_factory=LogStreams)
    pace: Pace = field(default_factory=lambda: Pace(MESSAGE_SECONDS, BYTES_PER_SECOND))

    async def read(self, namespace: str, pod: str, container: str, request: dict[str, Any]) -> AsyncGenerator[bytes]:
        """The log of a container. Raises NoLogs."""
        with self.streams.open(namespace):
            uid, vm = await self._vm_of(namespace, pod)
            endpoint = await self.endpoint(vm)
            if isinstance(endpoint, Health):
                raise NoLogs(f"the agent of VM {vm.name} cannot be asked for logs: {endpoint.message}")
            try:
                async for content in self.read_agent(endpoint, {**request, "podUID": uid, "container": container}):
                    yield content
                    await self.pace.wait(namespace, len(content))
            except LogsRefused as refused:
                raise _no_logs(vm.name, refused) from None

    async def _vm_of(self, namespace: str, pod: str) -> tuple[str, WarmVM]:
        """The UID of the Pod, and its VM."""
        found = await find(self.api, PODS, namespace, pod)
        if found is None:
            raise NoLogs(f"Pod {pod} does not exist")
        uid = found["metadata"]["uid"]
        if (found.get("spec") or {}).get("nodeName") != self.node:
            raise NoLogs(f"Pod {pod} is not on node {self.node}")
        claim = next((each for each in self.claims_of(uid) if each is not None and each.vm and not each.finished), None)
        if claim is None:
            raise NoLogs(_why_no_vm(pod, at(found, "status", "phase")))
        if claim.on_ec2:
            raise NoLogs("the logs of EC2 instances are not available")
        try:
            vm = parse_warm_vm(await self.api.get(VMS, namespace, claim.vm))
            vmi = parse_vmi_with_pods(await self.api.get(VMIS, namespace, claim.vm))
        except NotFound:
            raise NoLogs(f"VM {claim.vm} of Pod {pod} does not run any more") from None
        if vm.claim_uid != claim.uid or vmi.owner_uid != vm.uid:
            raise NoLogs(f"VM {claim.vm} is no longer that of Pod {pod}")
        return uid, replace(vm, vmi=vmi)
