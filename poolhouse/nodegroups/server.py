"""Serves the node groups to the autoscaler by gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc.aio import ServicerContext

from controllers.shared.vm import VM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.nodegroups.cluster import Cluster
from poolhouse.nodegroups.groups import (
    PROVIDER,
    Change,
    NodeGroup,
    Refused,
    decrease,
    delete,
    foreign,
    increase,
    vm_name,
)
from poolhouse.nodegroups.protocol import CREATING, DELETING, METHODS, RUNNING, SERVICE, messages
from poolhouse.runtime.credentials import is_loopback
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unauthorized

log = logging.getLogger(__name__)


DEADLINE_SECONDS = 30.0
"""for a call whose client sets none"""
STOP_SECONDS = 5.0

CODES: dict[type[ApiError], str] = {
    Unauthorized: "UNAUTHENTICATED",
    Forbidden: "PERMISSION_DENIED",
    NotFound: "NOT_FOUND",
    Conflict: "ABORTED",
    Invalid: "FAILED_PRECONDITION",
}
"""gRPC's codes of errors that the API server answers; UNAVAILABLE for all others"""


@dataclass(frozen=True)
class TLSFiles:
    certificate: Path
    key: Path
    client_ca: Path
    """the authorities of the autoscaler's certificate"""


class CloudProvider:
    """The calls of the autoscaler: each takes a request and returns the fields of the answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def Refresh(self, request: Any) -> Json:
        await self._cluster.refresh()
        return {}

    async def NodeGroups(self, request: Any) -> Json:
        groups = await self._cluster.groups()
        return {"nodeGroups": [_described(each) for each in groups.by_name.values()]}

    async def NodeGroupForNode(self, request: Any) -> Json:
        name = vm_name(request.node.providerID, request.node.name)
        group = (await self._cluster.groups()).of_vm(name) if name else None
        return {"nodeGroup": _described(group)} if group is not None else {}

    async def NodeGroupTargetSize(self, request: Any) -> Json:
        return {"targetSize": (await self._group(request.id)).size}

    async def NodeGroupNodes(self, request: Any) -> Json:
        group = await self._group(request.id)
        stay = {vm.uid for vm in group.counted}
        return {"instances": [_instance(vm, stays=vm.uid in stay) for vm in group.vms]}

    async def NodeGroupIncreaseSize(self, request: Any) -> Json:
        await self._cluster.change(request.id, lambda group, _: increase(group, request.delta))
        return {}

    async def NodeGroupDecreaseTargetSize(self, request: Any) -> Json:
        await self._cluster.change(request.id, lambda group, _: decrease(group, request.delta))
        return {}

    async def NodeGroupDeleteNodes(self, request: Any) -> Json:
        names = [vm_name(node.providerID, node.name) for node in request.nodes]
        for node, name in zip(request.nodes, names, strict=True):
            if not name:
                other = f"node {node.name} has the providerID {node.providerID}, not {PROVIDER}"
                raise Refused("INVALID_ARGUMENT", other)

        def decide(group: NodeGroup, vms: dict[str, VM]) -> Change | None:
            if problem := foreign(group, names, {name: vm.owner_uid for name, vm in vms.items()}):
                raise Refused("INVALID_ARGUMENT", problem)
            return delete(group, names)

        await self._cluster.change(request.id, decide)
        return {}

    async def GPULabel(self, request: Any) -> Json:
        return {}

    async def GetAvailableGPUTypes(self, request: Any) -> Json:
        return {}

    async def Cleanup(self, request: Any) -> Json:
        return {}

    async def _group(self, name: str) -> NodeGroup:
        groups = await self._cluster.groups()
        if name in groups.by_name:
            return groups.by_name[name]
        why = groups.refused.get(name, "there is no such pool with the annotations of a node group")
        raise Refused("NOT_FOUND", f"{name} is no node group: {why}")


def _described(group: NodeGroup) -> Json:
    limits, pool = group.limits, group.pool
    text = f"VirtualMachinePool {pool.namespace}/{pool.name}"
    return {"id": pool.name, "minSize": limits.min_size, "maxSize": limits.max_size, "debug": text}


def _instance(vm: VM, *, stays: bool) -> Json:
    state = (RUNNING if vm.ready else CREATING) if stays else DELETING
    return {"id": f"{PROVIDER}{vm.name}", "status": {"instanceState": state}}


def _handler(name: str, call: Callable[[Any], Awaitable[Json]]) -> Any:
    request, answer = messages()[f"{name}Request"], messages()[f"{name}Response"]

    async def handle(asked: Any, context: ServicerContext[Any, Any]) -> Any:
        try:
            async with asyncio.timeout(min(context.time_remaining() or DEADLINE_SECONDS, DEADLINE_SECONDS)):
                return answer(**await call(asked))
        except Refused as refused:
            await _abort(context, name, refused.code, refused.message)
        except ApiError as error:
            code = next((code for kind, code in CODES.items() if isinstance(error, kind)), "UNAVAILABLE")
            await _abort(context, name, code, str(error))
        except TimeoutError:
            await _abort(context, name, "DEADLINE_EXCEEDED", "the API server did not answer in time")

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


async def _abort(context: ServicerContext[Any, Any], name: str, code: str, message: str) -> NoReturn:
    log.warning("%s: %s: %s", name, code, message)
    await context.abort(grpc.StatusCode[code], message)
    raise AssertionError("abort raises")


async def serve(cluster: Cluster, host: str, port: int, tls: TLSFiles | None, started: Callable[[int], None]) -> None:
    """Serves until it is cancelled. Calls `started` with the port. Raises OSError if it cannot listen, or cannot read a
    file, and ValueError for plaintext on another address than loopback."""
    if tls is None and not is_loopback(host):
        raise ValueError(f"plaintext is served on loopback only, and {host} is another address")
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    provider = CloudProvider(cluster)
    methods = {name: _handler(name, getattr(provider, name)) for name in METHODS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    address = f"{host}:{port}"
    try:
        bound = (
            server.add_secure_port(address, _credentials(tls)) if tls is not None else server.add_insecure_port(address)
        )
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    started(bound)
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(STOP_SECONDS)


def _credentials(tls: TLSFiles) -> grpc.ServerCredentials:
    """Reads the files again for each connection, because certificates are renewed. Clients must have a certificate."""

    def read() -> Any:
        pair = tls.key.read_bytes(), tls.certificate.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], tls.client_ca.read_bytes())

    return grpc.dynamic_ssl_server_credentials(read(), read, require_client_authentication=True)
