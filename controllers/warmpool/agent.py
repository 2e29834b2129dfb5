"""Calls the agents in warm VMs and EC2 instances: health checks, and the applications of claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.shared.pace import Pace
from controllers.warmpool.agent_protocol import (
    HEALTH_SERVICE,
    LOGS_SERVICE,
    SERVICE,
    SERVICES,
    SERVING,
    from_message,
    to_message,
)
from controllers.warmpool.agent_reasons import AgentReason
from controllers.warmpool.backends import HEALTHY, Health
from poolhouse.api.apimachinery.unstructured import Json

MAX_ANSWER_BYTES = 1 << 20
MAX_STATUS_BYTES = 1 << 18
"""limit of an answer about an application: 32 containers with the longest messages of a kubelet fit"""
MAX_CONTAINERS = 16
"""containers, and init containers, of which the report is read: so many an application has"""
STATUS_SECONDS, STATUS_BYTES_PER_SECOND = 0.002, 512 * 1024
"""pace of these answers in a namespace. The longest take 15 ms of processor time, and those of a container 0.2 ms."""
UNREADABLE = (ValueError, OverflowError, OSError)
"""errors of values that no honest agent sends, such as a time after the year 9999"""


@dataclass(frozen=True)
class Certificates:
    """What verifies an agent, and what proves to it who calls."""

    ca: bytes
    server_name: str
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class AgentEndpoint:
    address: str
    port: int
    grpc: bool = False
    tls: bool = False
    certificates: Certificates | None = None
    """for TLS; None: the system's certificate authorities verify the agent"""
    namespace: str = ""
    """of the VM, with whose other VMs it shares the time in which answers are read"""

    @classmethod
    def parse(cls, tag: str, address: str, namespace: str = "") -> AgentEndpoint | None:
        """Parses the tag of an instance: `GRPC:8200`, `GRPC:8200:tls` for TLS, or `TCP:8200`."""
        protocol, _, rest = tag.partition(":")
        port, _, security = rest.partition(":")
        if protocol not in ("TCP", "GRPC") or not port.isdecimal():
            return None
        return cls(address, int(port), protocol == "GRPC", security == "tls", namespace=namespace)

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class ApplicationHealth(Health):
    """The health of an application that the agent has accepted."""

    status: Mapping[str, Any] = field(default_factory=dict)
    """the status of the application's Pod, as the agent reports it"""


@dataclass(frozen=True)
class Launched(Health):
    """The health of a VM whose agent has accepted the application of a claim."""

    application: ApplicationHealth = ApplicationHealth("Unable")


INVALID_ANSWER = "INVALID_ANSWER"
REFUSALS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION")
"""status codes of gRPC with which an agent refuses an application"""


class AgentError(Exception):
    """Why a call of an agent failed. `code` is that of gRPC, such as NOT_FOUND, or INVALID_ANSWER if the answer is no
    message of the method. The programs of a VM may answer in place of its agent, so any bytes can arrive."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code, self.details = code, details


class LogsRefused(Exception):
    """Why an agent sends no logs. `code` is that of gRPC, such as NOT_FOUND."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code


class AgentClient(Protocol):
    async def health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health: ...

    async def launch(self, endpoint: AgentEndpoint, pod: Json, timeout_seconds: float) -> Health:
        """Starts the application, and returns an `ApplicationHealth` if the agent has accepted it, also if the agent
        does not say how the application is. Without a spec, the agent chooses the application. The call is idempotent:
        the UID of the Pod identifies the application."""

    async def application_health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health: ...

    def watch(self, endpoint: AgentEndpoint) -> AsyncIterator[ApplicationHealth]:
        """The health of the application whenever it changes, until the agent closes the stream or does not answer. Ends
        at once for agents that offer no watch."""

    async def terminate(
        self, endpoint: AgentEndpoint, timeout_seconds: float, grace_seconds: float | None = None, uid: str = ""
    ) -> None:
        """Asks the agent to stop the application. Ignores errors, because the VM is deleted in any case."""


class NetworkAgentClient:
    """Calls agents over gRPC. For agents without gRPC, a TCP connection is the health check. `proxy` is the address of
    an HTTP proxy that reaches the agents, such as 127.0.0.1:3128."""

    def __init__(self, proxy: str = "", pace: Pace | None = None) -> None:
        self._pace = pace or Pace(STATUS_SECONDS, STATUS_BYTES_PER_SECOND)
        self._options: tuple[tuple[str, Any], ...] = (("grpc.max_receive_message_length", MAX_ANSWER_BYTES),)
        if proxy:
            self._options += (("grpc.http_proxy", f"http://{proxy}"),)

    async def health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        if not endpoint.grpc:
            return await self._connect(endpoint, timeout_seconds)
        async with self._channel(endpoint) as channel:
            try:
                answer = await _method(channel, "Check", HEALTH_SERVICE)(timeout_seconds)
            except AgentError as error:
                return _no_answer(endpoint, error)
        if answer.status == SERVING:
            return HEALTHY
        message = f"the agent at {endpoint} does not answer SERVING, but status {answer.status}"
        return Health("Failed", AgentReason.NOT_SERVING, message)

    async def launch(self, endpoint: AgentEndpoint, pod: Json, timeout_seconds: float) -> Health:
        async with self._channel(endpoint) as channel:
            try:
                await _method(channel, "LaunchApplication")(timeout_seconds, pod=to_message("Pod", pod))
            except AgentError as error:
                return _no_answer(endpoint, error, REFUSALS)
            found = await self._application_health(channel, endpoint, timeout_seconds)
        # The application may run from now on, so no other VM may start it, whatever the agent says of its health.
        if isinstance(found, ApplicationHealth):
            return found
        return ApplicationHealth("Unable", found.reason, found.message)

    async def application_health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        async with self._channel(endpoint) as channel:
            return await self._application_health(channel, endpoint, timeout_seconds)

    async def watch(self, endpoint: AgentEndpoint) -> AsyncIterator[ApplicationHealth]:
        async with self._channel(endpoint) as channel:
            with suppress(AgentError):
                watch = _method(channel, "WatchApplicationHealth", before_reading=self._before_reading(endpoint))
                async for answer in watch():
                    found = _parsed(endpoint, answer)
                    if isinstance(found, ApplicationHealth):
                        yield found

    async def logs(self, endpoint: AgentEndpoint, request: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """The log of a container. `request` has the fields of a LogsRequest. Raises LogsRefused."""
        async with self._channel(endpoint) as channel:
            try:
                async for answer in _method(channel, "ReadLogs", LOGS_SERVICE)(**request):
                    yield answer.content
            except AgentError as error:
                raise LogsRefused(error.code, error.details) from None

    async def terminate(
        self, endpoint: AgentEndpoint, timeout_seconds: float, grace_seconds: float | None = None, uid: str = ""
    ) -> None:
        content: dict[str, Any] = {"podUID": uid} if uid else {}
        if grace_seconds is not None:
            content["gracePeriodSeconds"] = int(grace_seconds)
        async with self._channel(endpoint) as channel:
            with suppress(AgentError):
                await _method(channel, "TerminateApplication")(timeout_seconds, **content)

    async def _application_health(self, channel: Any, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        try:
            check = _method(channel, "CheckApplicationHealth", before_reading=self._before_reading(endpoint))
            answer = await check(timeout_seconds)
        except AgentError as error:
            return _no_answer(endpoint, error)
        return _parsed(endpoint, answer)

    def _before_reading(self, endpoint: AgentEndpoint) -> Callable[[bytes], Awaitable[None]]:
        async def wait(answer: bytes) -> None:
            if len(answer) > MAX_STATUS_BYTES:
                why = f"the answer has {len(answer)} bytes; at most {MAX_STATUS_BYTES} are read"
                raise AgentError(INVALID_ANSWER, why)
            await self._pace.wait(endpoint.namespace, len(answer))

        return wait

    async def _connect(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        try:
            async with asyncio.timeout(timeout_seconds):
                _, writer = await asyncio.open_connection(endpoint.address, endpoint.port)
        except TimeoutError:
            return Health("Failed", AgentReason.NO_ANSWER, f"{endpoint}: no answer in {timeout_seconds:g} s")
        except OSError as error:
            return Health("Failed", AgentReason.NO_ANSWER, f"{endpoint}: {error}")
        writer.close()
        return HEALTHY

    @asynccontextmanager
    async def _channel(self, endpoint: AgentEndpoint) -> AsyncIterator[Any]:
        """Opens a channel for one call: a cached channel would keep a connection to each instance."""
        from grpc import ssl_channel_credentials
        from grpc.aio import insecure_channel, secure_channel

        options, known = self._options, endpoint.certificates
        if known is not None:
            credentials = ssl_channel_credentials(known.ca, known.key, known.certificate)
            options += (("grpc.ssl_target_name_override", known.server_name),)
            channel = secure_channel(str(endpoint), credentials, options)
        elif endpoint.tls:
            channel = secure_channel(str(endpoint), ssl_channel_credentials(), options)
        else:
            channel = insecure_channel(str(endpoint), options)
        async with channel:
            yield channel


async def _at_once(answer: bytes) -> None: ...


def _method(
    channel: Any,
    method: str,
    service: str = SERVICE,
    before_reading: Callable[[bytes], Awaitable[None]] = _at_once,
) -> Callable[..., Any]:
    """The call of a method, which takes a timeout and the fields of the request, and raises AgentError. A method with a
    stream of responses returns them as an iterator."""
    methods, classes = SERVICES[service]
    request, response = methods[method]
    path, write = f"/{service}/{method}", classes()[request].SerializeToString
    # gRPC itself would return None in place of an answer that is no message.
    read = classes()[response.removeprefix("[]")].FromString

    async def unary(timeout_seconds: float | None = None, **content: Any) -> Any:
        with _agent_errors():
            call = channel.unary_unary(path, request_serializer=write)
            answer = await call(classes()[request](**content), timeout=timeout_seconds)
            await before_reading(answer)
            return read(answer)

    async def stream(**content: Any) -> AsyncIterator[Any]:
        with _agent_errors():
            async for answer in channel.unary_stream(path, request_serializer=write)(classes()[request](**content)):
                await before_reading(answer)
                yield read(answer)

    return stream if response.startswith("[]") else unary


@contextmanager
def _agent_errors() -> Iterator[None]:
    from google.protobuf.message import DecodeError
    from grpc.aio import AioRpcError

    try:
        yield
    except AioRpcError as error:
        raise AgentError(error.code().name, error.details() or "") from None
    except DecodeError as error:
        raise AgentError(INVALID_ANSWER, str(error)) from None


def _no_answer(endpoint: AgentEndpoint, error: AgentError, refused: Collection[str] = ()) -> Health:
    """The health of a VM after a failed call. `refused` are the codes by which the agent refuses it."""
    reason = AgentReason.INVALID_ANSWER if error.code == INVALID_ANSWER else AgentReason.NO_ANSWER
    reason = AgentReason.LAUNCH_REFUSED if error.code in refused else reason
    return Health("Failed", reason, f"the agent at {endpoint}: {error}")


def _parsed(endpoint: AgentEndpoint, answer: Any) -> Health:
    # The conversion of a container takes 0.1 ms, and the event loop serves all tenants.
    del answer.podStatus.containerStatuses[MAX_CONTAINERS:], answer.podStatus.initContainerStatuses[MAX_CONTAINERS:]
    try:
        return application_health(from_message("PodStatus", answer.podStatus))
    except UNREADABLE as error:
        return Health("Failed", AgentReason.INVALID_ANSWER, f"the agent at {endpoint}: {error}")


def application_health(status: Mapping[str, Any]) -> ApplicationHealth:
    """The health by the status of the application's Pod."""
    phase = status.get("phase", "")
    said = status.get("message") or status.get("reason") or "; ".join(_failed_containers(status))
    message = f"the application is {phase or 'not started yet'}" + (f": {said}" if said else "")
    match phase:
        case "Running":
            return ApplicationHealth("Healthy", AgentReason.APPLICATION_RUNNING, message, status)
        case "Succeeded":
            return ApplicationHealth("Healthy", AgentReason.APPLICATION_SUCCEEDED, message, status)
        case "Failed":
            return ApplicationHealth("Failed", AgentReason.APPLICATION_FAILED, message, status)
    return ApplicationHealth("Unable", AgentReason.APPLICATION_STARTING, message, status)


def _failed_containers(status: Mapping[str, Any]) -> Iterator[str]:
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("state", {}).get("terminated")
        if ended is not None and ended.get("exitCode"):
            yield f"container {container.get('name')} has ended with exit code {ended['exitCode']}"
