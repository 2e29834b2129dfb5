"""The gRPC services of the agent: health, the application of a Virtual Kubelet's agent, and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio

from poolhouse_agent import protocol
from poolhouse_agent.application import Application, InvalidApplication
from poolhouse_agent.log_files import LogOptions, LogReader
from poolhouse_agent.runner import AnotherApplication, Runner

CHUNK_BYTES = 64 << 10
Context = Any
"""`grpc.aio.ServicerContext`, with the types of the request and the response"""


def parse(pod: bytes, default: Mapping[str, Any]) -> Application:
    """The application of a Pod, with the default spec if it has no containers. Raises InvalidApplication."""
    found = protocol.from_message("Pod", protocol.messages()["Pod"].FromString(pod))
    if default and not found.get("spec", {}).get("containers"):
        found["spec"] = default
    return Application.parse(found)


def new_server(runner: Runner) -> grpc.aio.Server:
    server = grpc.aio.server()
    application, logs = ApplicationService(runner), LogsService(runner)
    calls: dict[str, dict[str, Any]] = {
        protocol.HEALTH_SERVICE: {"Check": _check},
        protocol.SERVICE: {
            "LaunchApplication": application.launch,
            "TerminateApplication": application.terminate,
            "CheckApplicationHealth": application.check,
            "WatchApplicationHealth": application.watch,
        },
        protocol.LOGS_SERVICE: {"ReadLogs": logs.read},
    }
    server.add_generic_rpc_handlers([_handler(service, calls[service]) for service in protocol.SERVICES])
    return server


async def _check(request: Any, context: Context) -> Any:
    return protocol.health_messages()["HealthCheckResponse"](status=protocol.SERVING)


class ApplicationService:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def launch(self, request: Any, context: Context) -> Any:
        try:
            await self._runner.launch(request.pod.SerializeToString())
        except InvalidApplication as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except AnotherApplication as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return protocol.messages()["LaunchApplicationResponse"]()

    async def terminate(self, request: Any, context: Context) -> Any:
        grace = request.gracePeriodSeconds if request.HasField("gracePeriodSeconds") else None
        await self._runner.terminate(request.podUID, grace)
        return protocol.messages()["TerminateApplicationResponse"]()

    async def check(self, request: Any, context: Context) -> Any:
        return _health(self._runner.status())

    async def watch(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for status in self._runner.watch():
            yield _health(status)


class LogsService:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def read(self, request: Any, context: Context) -> AsyncIterator[Any]:
        if request.podUID != self._runner.uid:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the VM does not run the Pod with UID {request.podUID!r}")
        found = self._runner.log_of(request.container, request.previous)
        if found is None:
            which = "no previous run of the container" if request.previous else "no container"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is {which} {request.container!r}")
            return
        path, is_running = found
        response, content = protocol.logs_messages()["LogsResponse"], b""
        reader = LogReader(path, _options(request))
        async for text in reader.read(is_running, request.follow):
            content += text
            if request.follow or len(content) >= CHUNK_BYTES:
                yield response(content=content)
                content = b""
        if content:
            yield response(content=content)


def _options(request: Any) -> LogOptions:
    def number(name: str) -> int | None:
        return getattr(request, name) if request.HasField(name) else None

    since = datetime.fromtimestamp(request.sinceTime.seconds, UTC) if request.HasField("sinceTime") else None
    return LogOptions(request.timestamps, number("tailLines"), number("limitBytes"), since)


def _health(status: Mapping[str, Any]) -> Any:
    pod_status = protocol.to_message("PodStatus", status)
    return protocol.messages()["ApplicationHealthResponse"](podStatus=pod_status)


def _handler(service: str, calls: Mapping[str, Any]) -> Any:
    methods, classes = protocol.SERVICES[service]
    handlers = {}
    for method, (request, response) in methods.items():
        is_stream = response.startswith("[]")
        kind = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
        handlers[method] = kind(
            calls[method],
            request_deserializer=classes()[request].FromString,
            response_serializer=classes()[response.removeprefix("[]")].SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service, handlers)
