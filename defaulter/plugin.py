"""The hook as a plugin of KubeVirt: a gRPC server in a sidecar, on a socket in the VM's pod.

    python -m defaulter.plugin /var/run/kubevirt-plugin/poolhouse-hardware/hook.sock

`poolhouse hook --plugin` prints what a cluster needs to run it. The service is KubeVirt's
`kubevirt.hooks.plugins.v1alpha1.DomainHookService`. Its messages have three fields, which this module encodes itself.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

import grpc

from defaulter import hook

log = logging.getLogger(__name__)

SERVICE = "kubevirt.hooks.plugins.v1alpha1.DomainHookService"
METHOD = "MutateDomain"
STOP_SECONDS = 5.0
_DOMAIN, _VMI, _ANSWER = 2, 3, 1


class Request(NamedTuple):
    domain: bytes = b""
    vmi: bytes = b""


def serve(socket: Path) -> grpc.Server:
    """Starts a server on the socket. KubeVirt takes the socket as the sign that the hook is ready."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    method = grpc.unary_unary_rpc_method_handler(_mutate, request_deserializer=read, response_serializer=answer)
    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="hook"))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: method}),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _mutate(request: Request, context: grpc.ServicerContext) -> str:
    try:
        return hook.restore_for_vmi(request.vmi.decode(), request.domain.decode())
    except (ValueError, ParseError) as error:
        log.error("the domain is refused: %s", error)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise AssertionError("abort raises") from error


def read(message: bytes) -> Request:
    """The fields that the hook needs; it ignores others, which a newer KubeVirt may send."""
    fields = dict(_fields(message))
    return Request(fields.get(_DOMAIN, b""), fields.get(_VMI, b""))


def answer(domain: str) -> bytes:
    return _field(_ANSWER, domain.encode())


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each bytes field of a protocol buffer message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(message, at)
                if at + length > len(message):
                    raise ValueError("the message ends in the middle of a field")
                yield tag >> 3, message[at : at + length]
                at += length
            case 5:
                at += 4
            case kind:
                raise ValueError(f"the message has a field of the unknown kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("the message ends in the middle of a number")


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _number(len(content)) + content


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m defaulter.plugin SOCKET", file=sys.stderr)
        return 2
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()

    def end(*_: Any) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    server = serve(Path(arguments[0]))
    log.info("answering on %s", arguments[0])
    ended.wait()
    server.stop(STOP_SECONDS).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
