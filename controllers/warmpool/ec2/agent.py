"""The agent in an instance: whether it is well, and the application of a claim. The only file that imports grpc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from controllers.warmpool.backends import HEALTHY, Health
from controllers.warmpool.ec2.wire import METHODS, SERVICE, message_classes

WELL = ("Running", "Succeeded")


@dataclass(frozen=True)
class AgentEndpoint:
    """Where an agent answers, as the instance's tag has it: `GRPC:8200`, with `:tls` if it speaks TLS."""

    address: str
    port: int
    grpc: bool = False
    secure: bool = False

    @classmethod
    def read(cls, tag: str, address: str) -> AgentEndpoint | None:
        protocol, _, rest = tag.partition(":")
        port, _, secure = rest.partition(":")
        if protocol not in ("TCP", "GRPC") or not port.isdecimal():
            return None
        return cls(address, int(port), protocol == "GRPC", secure == "tls")

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Application:
    """What is launched for a claim: who it is. What is to run is the agent's to know."""

    namespace: str
    name: str
    uid: str


class AgentClient(Protocol):
    """The document's LaunchApplication and TerminateApplication, and its health check."""

    async def health(self, place: AgentEndpoint, timeout_seconds: float) -> Health: ...
    async def launch(self, place: AgentEndpoint, application: Application, timeout_seconds: float) -> Health:
        """Launches it, which again is no harm, and says how it is."""

    async def terminate(self, place: AgentEndpoint, timeout_seconds: float) -> None: ...


class NetworkAgentClient:
    """Agents over TCP and gRPC."""

    async def health(self, place: AgentEndpoint, timeout_seconds: float) -> Health:
        if not place.grpc:
            return await self._accepts(place, timeout_seconds)
        from grpc.aio import AioRpcError
        from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
        from grpc_health.v1.health_pb2_grpc import HealthStub

        async with self._channel(place) as channel:
            try:
                answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=timeout_seconds)
            except AioRpcError as error:
                return _failed(place, error)
        if answer.status == HealthCheckResponse.SERVING:
            return HEALTHY
        word = HealthCheckResponse.ServingStatus.Name(answer.status)
        return Health("Failed", "NotServing", f"the agent at {place} says {word}")

    async def launch(self, place: AgentEndpoint, application: Application, timeout_seconds: float) -> Health:
        from grpc.aio import AioRpcError

        metadata = {"namespace": application.namespace, "name": application.name, "uid": application.uid}
        async with self._channel(place) as channel:
            try:
                await self._ask(channel, "LaunchApplication", timeout_seconds, pod={"metadata": metadata})
                answer = await self._ask(channel, "CheckApplicationHealth", timeout_seconds)
            except AioRpcError as error:
                return _failed(place, error)
        status = answer.podStatus
        if status.phase in WELL:
            return HEALTHY
        said = f"the application of claim {application.name} is {status.phase or 'not started yet'}"
        said += f": {status.message or status.reason}" if status.message or status.reason else ""
        # Failed is a verdict; whatever else it is, it is on its way.
        if status.phase == "Failed":
            return Health("Failed", "ApplicationFailed", said)
        return Health("Unable", "ApplicationStarting", said)

    async def terminate(self, place: AgentEndpoint, timeout_seconds: float) -> None:
        """As far as the agent can: the instance goes anyway."""
        from contextlib import suppress

        from grpc.aio import AioRpcError

        async with self._channel(place) as channel:
            with suppress(AioRpcError):
                await self._ask(channel, "TerminateApplication", timeout_seconds)

    async def _accepts(self, place: AgentEndpoint, timeout_seconds: float) -> Health:
        try:
            async with asyncio.timeout(timeout_seconds):
                _, writer = await asyncio.open_connection(place.address, place.port)
        except TimeoutError:
            return Health("Failed", "NoAnswer", f"{place}: no answer in {timeout_seconds:g} s")
        except OSError as error:
            return Health("Failed", "NoAnswer", f"{place}: {error}")
        writer.close()
        return HEALTHY

    @cached_property
    def _messages(self) -> dict[str, Any]:
        return message_classes()

    async def _ask(self, channel: Any, method: str, timeout_seconds: float, **content: Any) -> Any:
        asked, answered = (self._messages[name] for name in METHODS[method])
        call = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=asked.SerializeToString,
            response_deserializer=answered.FromString,
        )
        return await call(asked(**content), timeout=timeout_seconds)

    @asynccontextmanager
    async def _channel(self, place: AgentEndpoint) -> AsyncIterator[Any]:
        """A new one for each question: a connection kept to a thousand instances is a thousand connections."""
        from grpc import ssl_channel_credentials
        from grpc.aio import insecure_channel, secure_channel

        if place.secure:
            channel = secure_channel(str(place), ssl_channel_credentials())
        else:
            channel = insecure_channel(str(place))
        async with channel:
            yield channel


def _failed(place: AgentEndpoint, error: Any) -> Health:
    return Health("Failed", "NoAnswer", f"the agent at {place}: {error.code().name}: {error.details()}")
