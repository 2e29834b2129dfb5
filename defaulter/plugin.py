"""Runs the hook as a plugin of KubeVirt: a gRPC server in a sidecar, on a socket in the VM's pod.

    python -m defaulter.plugin /var/run/kubevirt-plugin/poolhouse-hardware/hook.sock

`poolhouse hook --plugin` prints what a cluster needs to run it. The service is KubeVirt's
`kubevirt.hooks.plugins.v1alpha1.DomainHookService`.
"""

import logging
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from defaulter import hook

log = logging.getLogger(__name__)

PACKAGE = "kubevirt.hooks.plugins.v1alpha1"
SERVICE = f"{PACKAGE}.DomainHookService"
METHOD = "MutateDomain"
STOP_SECONDS = 5.0
FIELDS = {"MutateDomainRequest": {"domain": 2, "vmi": 3}, "MutateDomainResponse": {"domain": 1}}
"""numbers of the fields that the hook uses, by message; all fields are bytes"""


def _message_classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="hooks.proto", package=PACKAGE)  # proto2 also writes empty fields
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            message.field.add(name=field, number=number, type="TYPE_BYTES", label="LABEL_OPTIONAL")
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}


_MESSAGES = _message_classes()


class Request(NamedTuple):
    domain: bytes = b""
    vmi: bytes = b""


def serve(socket: Path) -> grpc.Server:
    """Starts a server on the socket. KubeVirt regards the hook as ready once the socket exists."""
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
    """Parses the fields that the hook needs. Ignores other fields, which a newer KubeVirt may send."""
    try:
        found = _MESSAGES["MutateDomainRequest"].FromString(message)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return Request(found.domain, found.vmi)


def answer(domain: str) -> bytes:
    serialized: bytes = _MESSAGES["MutateDomainResponse"](domain=domain.encode()).SerializeToString()
    return serialized


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
