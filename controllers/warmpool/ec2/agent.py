"""Calls the agent in an EC2 instance: health checks, and the application of a claim. Only this file imports grpc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from controllers.warmpool.agent_protocol import METHODS, SERVICE, messages, to_message
from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.ec2.reasons import EC2Reason


@dataclass(frozen=True)
class AgentEndpoint:
    address: str
    port: int
    grpc: bool = False
    tls: bool = False

    @classmethod
    def parse(cls, tag: str, address: str) -> AgentEndpoint | None:
        """Parses the instance's tag: `GRPC:8200`, `GRPC:8200:tls` for TLS, or `TCP:8200`."""
        protocol, _, rest = tag.partition(":")
        port, _, security = rest.partition(":")
        if protocol not in ("TCP", "GRPC") or not port.isdecimal():
            return None
        return cls(address, int(port), protocol == "GRPC", security == "tls")

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Application:
    """What the agent starts for a claim. Without a spec, the agent's configuration selects the application."""

    namespace: str
    name: str
    """of the claim, like the UID"""
    uid: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    """the spec of a Pod, without references to Secrets"""


class AgentClient(Protocol):
    async def health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health: ...
    async def launch(self, endpoint: AgentEndpoint, application: Application, timeout_seconds: float) -> Health:
        """Starts the application and returns its health. The call is idempotent."""

    async def application_health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health: ...
    async def terminate(self, endpoint: AgentEndpoint, timeout_seconds: float) -> None: ...


class NetworkAgentClient:
    """Calls agents over gRPC. For agents without gRPC, a TCP connection is the health check."""

    async def health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        if not endpoint.grpc:
            return await self._connect(endpoint, timeout_seconds)
        from grpc.aio import AioRpcError
        from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
        from grpc_health.v1.health_pb2_grpc import HealthStub

        async with self._channel(endpoint) as channel:
            try:
                answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=timeout_seconds)
            except AioRpcError as error:
                return _no_answer(endpoint, error)
        if answer.status == HealthCheckResponse.SERVING:
            return HEALTHY
        status = HealthCheckResponse.ServingStatus.Name(answer.status)
        return Health("Failed", EC2Reason.NOT_SERVING, f"the agent at {endpoint} answers {status}")

    async def launch(self, endpoint: AgentEndpoint, application: Application, timeout_seconds: float) -> Health:
        from grpc.aio import AioRpcError

        metadata = {"namespace": application.namespace, "name": application.name, "uid": application.uid}
        pod = to_message("Pod", {"metadata": metadata, "spec": application.spec})
        async with self._channel(endpoint) as channel:
            try:
                await self._call(channel, "LaunchApplication", timeout_seconds, pod=pod)
                answer = await self._call(channel, "CheckApplicationHealth", timeout_seconds)
            except AioRpcError as error:
                return _no_answer(endpoint, error)
        return _application_health(answer.podStatus)

    async def application_health(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        from grpc.aio import AioRpcError

        async with self._channel(endpoint) as channel:
            try:
                answer = await self._call(channel, "CheckApplicationHealth", timeout_seconds)
            except AioRpcError as error:
                return _no_answer(endpoint, error)
        return _application_health(answer.podStatus)

    async def terminate(self, endpoint: AgentEndpoint, timeout_seconds: float) -> None:
        """Stops the application. Ignores errors, because the instance is terminated in any case."""
        from grpc.aio import AioRpcError

        async with self._channel(endpoint) as channel:
            with suppress(AioRpcError):
                await self._call(channel, "TerminateApplication", timeout_seconds)

    async def _connect(self, endpoint: AgentEndpoint, timeout_seconds: float) -> Health:
        try:
            async with asyncio.timeout(timeout_seconds):
                _, writer = await asyncio.open_connection(endpoint.address, endpoint.port)
        except TimeoutError:
            return Health("Failed", EC2Reason.NO_ANSWER, f"{endpoint}: no answer in {timeout_seconds:g} s")
        except OSError as error:
            return Health("Failed", EC2Reason.NO_ANSWER, f"{endpoint}: {error}")
        writer.close()
        return HEALTHY

    async def _call(self, channel: Any, method: str, timeout_seconds: float, **content: Any) -> Any:
        request, response = (messages()[name] for name in METHODS[method])
        call = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request(**content), timeout=timeout_seconds)

    @asynccontextmanager
    async def _channel(self, endpoint: AgentEndpoint) -> AsyncIterator[Any]:
        """Opens a channel for one call: a cached channel would keep a connection to each instance."""
        from grpc import ssl_channel_credentials
        from grpc.aio import insecure_channel, secure_channel

        if endpoint.tls:
            channel = secure_channel(str(endpoint), ssl_channel_credentials())
        else:
            channel = insecure_channel(str(endpoint))
        async with channel:
            yield channel


def _no_answer(endpoint: AgentEndpoint, error: Any) -> Health:
    return Health("Failed", EC2Reason.NO_ANSWER, f"the agent at {endpoint}: {error.code().name}: {error.details()}")


def _application_health(status: Any) -> Health:
    """The health by the status of the application's Pod."""
    message = f"the application is {status.phase or 'not started yet'}"
    message += f": {status.message or status.reason}" if status.message or status.reason else ""
    match status.phase:
        case "Running":
            return Health("Healthy", EC2Reason.APPLICATION_RUNNING, message)
        case "Succeeded":
            return Health("Healthy", EC2Reason.APPLICATION_SUCCEEDED, message)
        case "Failed":
            return Health("Failed", EC2Reason.APPLICATION_FAILED, message)
    return Health("Unable", EC2Reason.APPLICATION_STARTING, message)
