"""Runs probes: a command in the container, or a request or a connection to the loopback address of this VM."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress

from poolhouse_agent.application import Container, Json, Probe

LOOPBACK = "127.0.0.1"


async def run_probe(
    container: Container, probe: Probe, execution: tuple[Sequence[str], Mapping[str, str] | None]
) -> bool:
    """Returns whether the probe has succeeded in its time. `execution` is the command of an exec probe."""
    try:
        async with asyncio.timeout(probe.timeout):
            if probe.handler == "exec":
                return await _execute(*execution, container.working_dir or "/" if not container.image else "/")
            port, host = _port(container, probe.action), probe.action.get("host") or LOOPBACK
            if probe.handler == "httpGet":
                return await _get(host, port, probe.action)
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    except (OSError, ValueError):  # among them TimeoutError
        return False


def _port(container: Container, action: Json) -> int:
    port = action.get("port", 0)
    return port if isinstance(port, int) else container.ports.get(port) or int(port)


async def _execute(command: Sequence[str], environment: Mapping[str, str] | None, directory: str) -> bool:
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=nothing, stdout=nothing, stderr=nothing, env=environment, cwd=directory, start_new_session=True
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()


async def _get(host: str, port: int, action: Json) -> bool:
    """Statuses from 200 to 399 are a success. Certificates are not verified, as by the kubelet."""
    path, security = action.get("path") or "/", None
    if action.get("scheme", "HTTP").upper() == "HTTPS":
        security = ssl.create_default_context()
        security.check_hostname, security.verify_mode = False, ssl.CERT_NONE
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.34", "Accept": "*/*", "Connection": "close"}
    headers |= {each["name"]: each.get("value", "") for each in action.get("httpHeaders", ())}
    lines = [f"GET {path if path.startswith('/') else f'/{path}'} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    reader, writer = await asyncio.open_connection(host, port, ssl=security)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = (await reader.readline()).split()
        return len(answer) > 1 and answer[0].startswith(b"HTTP/") and 200 <= int(answer[1]) < 400
    finally:
        writer.close()
