"""Asks the services of guests, through a port of this machine that QEMU's user-mode network forwards.

QEMU accepts each connection to a forwarded port, and only then connects to the guest. A connection therefore counts
only when QEMU shows it as established.
"""

import asyncio
import re
import socket

import aiohttp

from poolhouse.stack.engine.hypervisor import HypervisorRefused
from poolhouse.stack.engine.objects import VMI
from poolhouse.stack.engine.qemu.connections import LibvirtRefused, NodeConnection, NodeUnavailable
from poolhouse.stack.engine.vmi.probes import Probe

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.05
NETWORK = re.compile(r"^\S+ -?\d+ \((\S+)\):", re.MULTILINE)


class GuestProber:
    def __init__(self) -> None:
        self._forwarded: dict[tuple[str, str, int], int] = {}
        """port of this machine, by UID of the VMI, node and port of the guest"""

    def forget(self, uid: str) -> None:
        for key in [key for key in self._forwarded if key[0] == uid]:
            del self._forwarded[key]

    async def probe(self, node: NodeConnection, vmi: VMI, probe: Probe) -> str:
        if not probe.port:
            return "the port is not a number, and no interface of the VMI has a port of this name"
        try:
            port = await self.forward(node, vmi, probe.port)
            if probe.handler == "tcpSocket":
                return await self._connect(node, vmi, port)
        except (LibvirtRefused, NodeUnavailable) as error:
            raise HypervisorRefused(str(error)) from error
        return await _get(port, probe)

    async def forward(self, node: NodeConnection, vmi: VMI, port: int) -> int:
        """The port of this machine that leads to the guest's port."""
        key = vmi.uid, node.name, port
        if key not in self._forwarded:
            network = NETWORK.search(await node.monitor(vmi.uid, "info usernet"))
            if network is None:
                raise HypervisorRefused("the guest has no network interface")
            free = _free_port()
            answer = await node.monitor(vmi.uid, f"hostfwd_add {network[1]} tcp:{LOOPBACK}:{free}-:{port}")
            if answer.strip():
                raise HypervisorRefused(answer.strip())
            self._forwarded[key] = free
        return self._forwarded[key]

    async def _connect(self, node: NodeConnection, vmi: VMI, port: int) -> str:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError as error:
            return f"dial tcp: {error.strerror or error}"
        try:
            while not reader.at_eof():
                if is_established(await node.monitor(vmi.uid, "info usernet"), port):
                    return ""
                await asyncio.sleep(POLL_SECONDS)
            return "dial tcp: connection refused"
        finally:
            writer.close()


def is_established(connections: str, port: int) -> bool:
    """Whether QEMU's list of connections has one from the forwarded port to the guest."""
    fields = (line.split() for line in connections.splitlines())
    return any(len(each) > 3 and each[0] == "TCP[ESTABLISHED]" and each[3] == str(port) for each in fields)


async def _get(port: int, probe: Probe) -> str:
    scheme, path = probe.scheme.lower(), probe.path if probe.path.startswith("/") else f"/{probe.path}"
    headers = {"User-Agent": "kube-probe/1.34", "Host": probe.host or f"10.0.2.15:{probe.port}", **dict(probe.headers)}
    url = f"{scheme}://{LOOPBACK}:{port}{path}"
    try:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(url, allow_redirects=False, ssl=False) as answer,
        ):
            found = answer.status
    except (aiohttp.ClientError, OSError) as error:
        return f"Get {scheme}://10.0.2.15:{probe.port}{path}: {str(error) or type(error).__name__}"
    return "" if 200 <= found < 400 else f"HTTP probe failed with statuscode: {found}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])
