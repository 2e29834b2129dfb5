"""Plays the agents of all simulated guests in one gRPC server.

A connection comes from the proxy, which knows the address of the guest. The server knows a guest by the local port of
the proxy's connection to it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NoReturn

import grpc
import grpc.aio

from controllers.warmpool.agent_protocol import (
    HEALTH_METHODS,
    HEALTH_SERVICE,
    METHODS,
    SERVICE,
    SERVING,
    from_message,
    health_messages,
    messages,
    to_message,
)
from poolhouse.stack.engine.agents.addresses import GuestAddresses
from poolhouse.stack.engine.agents.application import NOTHING, Application, Report, report
from poolhouse.stack.engine.agents.proxy import Streams, serve_proxy
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.vmi.phases import is_paused

HOST = "127.0.0.1"


class SimulatedAgents:
    """The agents and applications of simulated guests. A restart of the engine forgets the applications."""

    def __init__(self, informers: Informers, addresses: GuestAddresses) -> None:
        self._informers, self._addresses = informers, addresses
        self._applications: dict[str, Application] = {}
        self._changed: dict[str, asyncio.Event] = {}
        """set when an application is launched or stopped; by UID of the VMI, as all dicts here"""
        self._guests: dict[int, str] = {}
        """UID of the VMI by the local port of a connection"""
        self._port = 0
        informers.vmis.subscribe(self._vmi_changed)

    async def serve(self, proxy: str) -> NoReturn:
        """Serves the agents behind a proxy at this address."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(self._handlers())
        self._port = server.add_insecure_port(f"{HOST}:0")
        await server.start()
        host, _, port = proxy.rpartition(":")
        try:
            await serve_proxy(host, int(port), self._open)
        finally:
            await server.stop(0)

    async def _open(self, address: str, port: int) -> Streams:
        uid = self._addresses.owner(address)
        if self._running(uid) is None:
            raise ConnectionRefusedError(f"no running guest with an agent has the address {address}")
        reader, writer = await asyncio.open_connection(HOST, self._port)
        local = writer.get_extra_info("sockname")[1]
        self._guests[local] = uid
        writer_closed = asyncio.ensure_future(writer.wait_closed())
        writer_closed.add_done_callback(lambda _: self._forget(local, uid))
        return reader, writer

    def _forget(self, port: int, uid: str) -> None:
        if self._guests.get(port) == uid:
            del self._guests[port]

    def _running(self, uid: str) -> VMI | None:
        """The VMI of a guest whose agent answers."""
        vmi = self._informers.vmis.store.first("uid", uid) if uid else None
        if vmi is None or vmi.phase != "Running" or vmi.deleted is not None or is_paused(vmi):
            return None
        return vmi if self._informers.faults_of(vmi)[0].application else None

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if old is not None and (new is None or new.uid != old.uid or new.final):
            self._applications.pop(old.uid, None)
            self._notify(old.uid)

    def _notify(self, uid: str) -> None:
        if (event := self._changed.pop(uid, None)) is not None:
            event.set()

    async def _guest(self, context: Any) -> VMI:
        port = context.peer().rpartition(":")[2]
        found = self._running(self._guests.get(int(port), "")) if port.isdecimal() else None
        if found is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the guest does not run (simulated)")
        assert found is not None
        return found

    def _report(self, vmi: VMI) -> Report:
        app = self._applications.get(vmi.uid)
        if app is None:
            return NOTHING
        faults = self._informers.faults_of(vmi)[0]
        return report(app, faults.application_seconds, faults.application_exit_code, self._informers.now())

    # Methods of the agent

    async def _serving(self, request: Any, context: Any) -> Any:
        await self._guest(context)
        return health_messages()["HealthCheckResponse"](status=SERVING)

    async def _launch(self, request: Any, context: Any) -> Any:
        vmi = await self._guest(context)
        pod = from_message("Pod", request.pod)
        uid = pod.get("metadata", {}).get("uid", "")
        app = self._applications.get(vmi.uid)
        if app is not None and app.uid != uid:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the guest runs another application (simulated)")
        if app is None:
            self._applications[vmi.uid] = Application(uid, pod.get("spec", {}), self._informers.now())
            self._notify(vmi.uid)
        return messages()["LaunchApplicationResponse"]()

    async def _terminate(self, request: Any, context: Any) -> Any:
        vmi = await self._guest(context)
        app = self._applications.get(vmi.uid)
        mine = app is not None and request.podUID in ("", app.uid)
        if app is not None and mine and self._report(vmi).status["phase"] == "Running":
            self._applications[vmi.uid] = replace(app, stopped=self._informers.now())
            self._notify(vmi.uid)
        return messages()["TerminateApplicationResponse"]()

    async def _check(self, request: Any, context: Any) -> Any:
        return _health(self._report(await self._guest(context)))

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        vmi, told = await self._guest(context), None
        while self._running(vmi.uid) is not None:
            found = self._report(vmi)
            if found.status != told:
                told = found.status
                yield _health(found)
            event = self._changed.setdefault(vmi.uid, asyncio.Event())
            try:
                async with asyncio.timeout(found.change_seconds):
                    await event.wait()
            except TimeoutError:
                continue

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        does: dict[str, Callable[..., Any]] = {
            "LaunchApplication": self._launch,
            "TerminateApplication": self._terminate,
            "CheckApplicationHealth": self._check,
            "WatchApplicationHealth": self._watch,
        }
        methods = {name: _handler(answer, *METHODS[name], messages()) for name, answer in does.items()}
        health = {"Check": _handler(self._serving, *HEALTH_METHODS["Check"], health_messages())}
        handler = grpc.method_handlers_generic_handler
        return [handler(SERVICE, methods), handler(HEALTH_SERVICE, health)]


def _health(found: Report) -> Any:
    return messages()["ApplicationHealthResponse"](podStatus=to_message("PodStatus", found.status))


def _handler(answer: Callable[..., Any], request: str, response: str, known: dict[str, Any]) -> Any:
    stream = response.startswith("[]")
    kind = grpc.unary_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
    return kind(
        answer,
        request_deserializer=known[request].FromString,
        response_serializer=known[response.removeprefix("[]")].SerializeToString,
    )
