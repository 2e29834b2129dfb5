"""Runs the hook as a sidecar of KubeVirt's feature gate Sidecar: a gRPC server on a socket in the VM's pod.

    python -m defaulter.sidecar /var/run/kubevirt-hooks/poolhouse-hardware.sock

The webhook asks KubeVirt for this sidecar when a VMI with a hardware record is created. The services are KubeVirt's
`kubevirt.hooks.info.Info` and `kubevirt.hooks.v1alpha3.Callbacks`. The launcher asks `Shutdown` when the guest has
ended, so that the pod ends too.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from defaulter import hook

log = logging.getLogger(__name__)

INFO, CALLBACKS = "kubevirt.hooks.info.Info", "kubevirt.hooks.v1alpha3.Callbacks"
NAME, POINT, VERSION = "poolhouse-hardware", "OnDefineDomain", "v1alpha3"
STOP_SECONDS = 5.0
_FIELDS = {
    "Empty": (),
    "Point": (("name", 1, "TYPE_STRING"), ("priority", 2, "TYPE_INT32")),
    "Info": (("name", 1, "TYPE_STRING"), ("points", 3, "Point"), ("versions", 4, "TYPE_STRING")),
    "Params": (("domain", 1, "TYPE_BYTES"), ("vmi", 2, "TYPE_BYTES")),
    "Result": (("domain", 1, "TYPE_BYTES"),),
}
"""KubeVirt's messages: the name, number and type of each field. On the wire, only numbers count."""


def _message_classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="sidecar.proto", package=NAME.replace("-", "."), syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = "LABEL_REPEATED" if field in ("points", "versions") else "LABEL_OPTIONAL"
            added = message.field.add(name=field, number=number, label=label)
            if kind.startswith("TYPE_"):
                added.type = added.Type.Value(kind)
            else:
                added.type, added.type_name = added.Type.Value("TYPE_MESSAGE"), f".{file.package}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}")) for name in _FIELDS}


MESSAGES = _message_classes()


def serve(socket: Path, ended: Callable[[], None]) -> grpc.Server:
    """Starts a server on the socket. KubeVirt regards the hook as ready once the socket exists. Calls `ended` when the
    launcher asks the hook to end."""
    socket.unlink(missing_ok=True)

    def info(_: Any, context: grpc.ServicerContext) -> Any:
        return MESSAGES["Info"](name=NAME, points=[{"name": POINT}], versions=[VERSION])

    def define(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            restored = hook.restore_for_vmi(request.vmi.decode(), request.domain.decode())
        except (ValueError, ParseError) as error:
            log.error("the domain is refused: %s", error)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise AssertionError("abort raises") from error
        return MESSAGES["Result"](domain=restored.encode())

    def shutdown(_: Any, context: grpc.ServicerContext) -> Any:
        ended()
        return MESSAGES["Empty"]()

    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="hook"))
    callbacks = {POINT: _method("Params", define), "Shutdown": _method("Empty", shutdown)}
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(INFO, {"Info": _method("Empty", info)}),
            grpc.method_handlers_generic_handler(CALLBACKS, callbacks),
        )
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _method(request: str, answer: Callable[[Any, grpc.ServicerContext], Any]) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=MESSAGES[request].FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m defaulter.sidecar SOCKET", file=sys.stderr)
        return 2
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = serve(Path(arguments[0]), ended.set)
    log.info("answering on %s", arguments[0])
    ended.wait()
    server.stop(STOP_SECONDS).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
