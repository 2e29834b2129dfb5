"""A server that answers as the agents of all VMs and instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from google.protobuf.json_format import MessageToDict

from controllers.warmpool.agent_protocol import (
    HEALTH_METHODS,
    HEALTH_SERVICE,
    METHODS,
    NOT_SERVING,
    SERVICE,
    SERVING,
    health_messages,
    messages,
)

Json = dict[str, Any]


@dataclass
class Agent:
    """What the agents have been asked, and what they answer."""

    port: int = 0
    launched: list[Json] = field(default_factory=list)
    specs: list[Json] = field(default_factory=list)
    """of the Pods that were launched"""
    terminated: int = 0
    terminations: list[Json] = field(default_factory=list)
    phase: str = "Running"
    """phase of all applications"""
    seconds: int = 0
    """start of all applications, in seconds since 1970"""
    well: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def serving(self, well: bool) -> None:
        self.well = well

    def becomes(self, phase: str) -> None:
        self.phase = phase
        self.changed.set()

    async def check_health(self, asked: Any, context: Any) -> Any:
        return health_messages()["HealthCheckResponse"](status=SERVING if self.well else NOT_SERVING)

    async def launch(self, asked: Any, context: Any) -> Any:
        who = asked.pod.metadata
        if not asked.pod.spec.restartPolicy and asked.pod.spec.containers:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no restart policy")
        self.launched.append({"namespace": who.namespace, "name": who.name, "uid": who.uid})
        self.specs.append(MessageToDict(asked.pod.spec))
        return messages()["LaunchApplicationResponse"]()

    async def terminate(self, asked: Any, context: Any) -> Any:
        self.terminated += 1
        self.terminations.append(MessageToDict(asked))
        return messages()["TerminateApplicationResponse"]()

    async def check(self, asked: Any, context: Any) -> Any:
        return self.report()

    async def watch(self, asked: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            yield self.report()
            await self.changed.wait()
            self.changed.clear()

    def report(self) -> Any:
        status = {"phase": self.phase, **({"startTime": {"seconds": self.seconds}} if self.seconds else {})}
        return messages()["ApplicationHealthResponse"](podStatus=status)


@asynccontextmanager
async def agent(*, watch: bool = True, credentials: Any = None) -> AsyncIterator[Agent]:
    found, known = Agent(), messages()
    handlers = {}
    does = {
        "LaunchApplication": found.launch,
        "TerminateApplication": found.terminate,
        "CheckApplicationHealth": found.check,
        **({"WatchApplicationHealth": found.watch} if watch else {}),
    }
    for method, answer in does.items():
        asked, answered = METHODS[method]
        kind = (
            grpc.unary_stream_rpc_method_handler if answered.startswith("[]") else grpc.unary_unary_rpc_method_handler
        )
        handlers[method] = kind(
            answer,
            request_deserializer=known[asked].FromString,
            response_serializer=known[answered.removeprefix("[]")].SerializeToString,
        )
    asked, answered = HEALTH_METHODS["Check"]
    health = grpc.unary_unary_rpc_method_handler(
        found.check_health,
        request_deserializer=health_messages()[asked].FromString,
        response_serializer=health_messages()[answered].SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(SERVICE, handlers),
            grpc.method_handlers_generic_handler(HEALTH_SERVICE, {"Check": health}),
        ]
    )
    if credentials is None:
        found.port = server.add_insecure_port("0.0.0.0:0")
    else:
        found.port = server.add_secure_port("0.0.0.0:0", credentials)
    await server.start()
    try:
        yield found
    finally:
        await server.stop(0)


@asynccontextmanager
async def garbling_agent(answer: bytes) -> AsyncIterator[int]:
    """Serves this answer to every call, on the port that it returns."""

    async def once(asked: bytes, context: Any) -> bytes:
        return answer

    async def often(asked: bytes, context: Any) -> AsyncIterator[bytes]:
        yield answer

    class Every(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> Any:
            if call.method.endswith(("/WatchApplicationHealth", "/ReadLogs")):
                return grpc.unary_stream_rpc_method_handler(often)
            return grpc.unary_unary_rpc_method_handler(once)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Every()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
