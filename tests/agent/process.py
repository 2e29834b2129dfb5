"""An agent as a process, and calls to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from controllers.warmpool import agent_protocol as protocol
from tests.agent import AGENT

Json = dict[str, Any]
SECONDS = 60.0


class Agent:
    """An agent, and calls to it."""

    def __init__(self, directory: Path, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self.directory, self.options, self.environment = directory, options, environment
        self.process: asyncio.subprocess.Process | None = None
        self.channel: Any = None
        self.port = 0

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "poolhouse_agent",
            *("--listen", "127.0.0.1:0"),
            *("--state-dir", str(self.directory / "state"), "--runtime-dir", str(self.directory / "run")),
            *self.options,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(AGENT), **self.environment},
        )
        assert self.process.stderr is not None
        seen = b""
        async for line in self.process.stderr:
            seen += line
            if b"listening" in line:
                break
        else:
            raise AssertionError(seen.decode())
        address = line.decode().split()[-1]
        self.port = int(address.rpartition(":")[2])
        self.channel = grpc.aio.insecure_channel(address)

    async def end(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        await self.channel.close()
        self.process.send_signal(number)
        await self.process.communicate()

    async def launch(self, spec: Json, uid: str = "a") -> None:
        pod = {"metadata": {"name": "web", "namespace": "shop", "uid": uid}, "spec": spec}
        await self._call("LaunchApplication", pod=protocol.to_message("Pod", pod))

    async def terminate(self, **options: Any) -> None:
        await self._call("TerminateApplication", **options)

    async def status(self) -> Json:
        answer = await self._call("CheckApplicationHealth")
        return protocol.from_message("PodStatus", answer.podStatus)

    async def until(self, reached: Callable[[Json], bool]) -> Json:
        """The first status of the watch for which this is true."""
        call = self.channel.unary_stream(
            f"/{protocol.SERVICE}/WatchApplicationHealth",
            request_serializer=protocol.messages()["ApplicationHealthRequest"].SerializeToString,
            response_deserializer=protocol.messages()["ApplicationHealthResponse"].FromString,
        )(protocol.messages()["ApplicationHealthRequest"](), timeout=SECONDS)
        async for answer in call:
            status = protocol.from_message("PodStatus", answer.podStatus)
            if reached(status):
                call.cancel()
                return status
        raise AssertionError("the watch has ended")

    async def logs(self, container: str, uid: str = "a", **options: Any) -> str:
        request, response = (protocol.logs_messages()[each] for each in ("LogsRequest", "LogsResponse"))
        call = self.channel.unary_stream(
            f"/{protocol.LOGS_SERVICE}/ReadLogs",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )(request(podUID=uid, container=container, **options), timeout=SECONDS)
        return b"".join([each.content async for each in call]).decode()

    async def _call(self, method: str, **content: Any) -> Any:
        request, response = (protocol.messages()[name] for name in protocol.METHODS[method])
        call = self.channel.unary_unary(
            f"/{protocol.SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request(**content), timeout=SECONDS)


@asynccontextmanager
async def running_agent(directory: Path, **environment: str) -> AsyncIterator[Agent]:
    agent = Agent(directory, (), environment)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.terminate(gracePeriodSeconds=0)
        await agent.end()


def shell(script: str, name: str = "main", **more: Any) -> Json:
    return {"name": name, "command": ["sh", "-c", script], **more}


def files_in(directory: Path) -> list[str]:
    return [str(each.relative_to(directory)) for each in directory.rglob("*")]


def finished(status: Json) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def running(status: Json) -> bool:
    return status.get("phase") == "Running"
