"""The gRPC server: its addresses, its certificates and its answers to errors of the API server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from poolhouse.api.kinds.node_groups import Limits
from poolhouse.nodegroups.groups import Groups, NodeGroup
from poolhouse.nodegroups.protocol import SERVICE
from poolhouse.nodegroups.server import TLSFiles, serve
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, Invalid, Unauthorized, Unavailable
from poolhouse.service.certificates import new_ca, new_client_certificate, new_server_certificate
from tests.controllers.pool.builders import a_pool, leaving, vm
from tests.nodegroups.calls import Autoscaler

# The event loop of gRPC must not end between tests.
pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = timedelta(hours=1)
WEB = NodeGroup(a_pool(3), Limits(1, 5), (vm(1), vm(2, ready=False), leaving(3)))


class Pools:
    """The cluster: pool `web`, or an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    async def refresh(self) -> None:
        if self.error is not None:
            raise self.error

    async def groups(self) -> Groups:
        await self.refresh()
        return Groups({"web": WEB}, {"db": "the pool is paused"})


class Hanging(Pools):
    async def refresh(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def served(pools: Pools, tls: TLSFiles | None = None) -> AsyncIterator[int]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(pools, "127.0.0.1", 0, tls, port.set_result))  # type: ignore[arg-type]
    waits: list[asyncio.Future[Any]] = [port, serving]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert port.done(), serving.exception()
    try:
        yield port.result()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def autoscaler(pools: Pools) -> AsyncIterator[Autoscaler]:
    async with served(pools) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Autoscaler(channel)


async def test_answers() -> None:
    async with autoscaler(Pools()) as asks:
        (found,) = (await asks.call("NodeGroups")).nodeGroups
        assert (found.id, found.minSize, found.maxSize) == ("web", 1, 5)
        assert (await asks.call("NodeGroupTargetSize", id="web")).targetSize == 3
        instances = (await asks.call("NodeGroupNodes", id="web")).instances
        states = {each.id: each.status.instanceState for each in instances}
        assert states == {"kubevirt://web-1": 1, "kubevirt://web-2": 2, "kubevirt://web-3": 3}
        known = {"providerID": "kubevirt://web-1", "name": "worker-1"}
        assert (await asks.call("NodeGroupForNode", node=known)).nodeGroup.id == "web"
        assert (await asks.call("NodeGroupForNode", node={"name": "control-plane"})).nodeGroup.id == ""
        assert (await asks.call("GPULabel")).label == ""
        for method in ("GetAvailableGPUTypes", "Refresh", "Cleanup"):
            await asks.call(method)


async def test_a_pool_that_is_no_node_group_is_refused_with_the_reason() -> None:
    async with autoscaler(Pools()) as asks:
        assert await asks.refused("NodeGroupTargetSize", id="db") == (
            "NOT_FOUND: db is no node group: the pool is paused"
        )
        assert await asks.refused("NodeGroupNodes", id="gone") == (
            "NOT_FOUND: gone is no node group: there is no such pool with the annotations of a node group"
        )
        other = {"providerID": "aws:///i-1", "name": "web-1"}
        assert await asks.refused("NodeGroupDeleteNodes", id="web", nodes=[other]) == (
            "INVALID_ARGUMENT: node web-1 has the providerID aws:///i-1, not kubevirt://"
        )


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (Unauthorized, 401, "UNAUTHENTICATED: 401: no"),
        (Forbidden, 403, "PERMISSION_DENIED: 403: no"),
        (Conflict, 409, "ABORTED: 409: no"),
        (Invalid, 422, "FAILED_PRECONDITION: 422: no"),
        (Unavailable, 503, "UNAVAILABLE: 503: no"),
    ],
)
async def test_errors_of_the_api_server(error: type[ApiError], status: int, expected: str) -> None:
    async with autoscaler(Pools(error("no", status=status))) as asks:
        assert await asks.refused("NodeGroups") == expected


async def test_a_call_ends_at_the_deadline_of_its_client() -> None:
    async with autoscaler(Hanging()) as asks:
        assert (await asks.refused("Refresh", seconds=0.2)).startswith("DEADLINE_EXCEEDED")


async def test_what_the_provider_does_not_know_is_unimplemented() -> None:
    async with served(Pools()) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        send = channel.unary_unary(f"/{SERVICE}/NodeGroupTemplateNodeInfo")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await send(b"", timeout=30)
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def files(directory: Path, name: str) -> tuple[TLSFiles, bytes, bytes]:
    """The server's files, and the certificate and the key of a client, of one authority."""
    now = datetime.now(UTC)
    ca = new_ca(name, now, HOUR)
    pair = new_server_certificate(ca, name, ["localhost"], now, HOUR)
    found = TLSFiles(directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}-ca.crt")
    found.certificate.write_bytes(pair.certificate)
    found.key.write_bytes(pair.key)
    found.client_ca.write_bytes(ca.certificate)
    client = new_client_certificate(ca, "autoscaler", now, HOUR)
    return found, client.certificate, client.key


async def test_clients_need_a_certificate_of_the_authority(tmp_path: Path) -> None:
    tls, certificate, key = files(tmp_path, "ours")
    _, other_certificate, other_key = files(tmp_path, "others")
    ca = tls.client_ca.read_bytes()
    rows = {(key, certificate): True, (None, None): False, (other_key, other_certificate): False}
    async with served(Pools(), tls) as port:
        for (its_key, its_certificate), allowed in rows.items():
            credentials = grpc.ssl_channel_credentials(ca, its_key, its_certificate)
            async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
                asks = Autoscaler(channel)
                if allowed:
                    assert (await asks.call("NodeGroups")).nodeGroups
                else:
                    assert (await asks.refused("NodeGroups")).startswith("UNAVAILABLE")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert (await Autoscaler(channel).refused("NodeGroups")).startswith("UNAVAILABLE")


async def test_plaintext_is_served_on_loopback_only() -> None:
    with pytest.raises(ValueError, match="on loopback only"):
        await serve(Pools(), "0.0.0.0", 0, None, lambda port: None)  # type: ignore[arg-type]


async def test_an_address_that_is_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(OSError, match="bind"):
            await serve(Pools(), "127.0.0.1", number, None, lambda port: None)  # type: ignore[arg-type]
