"""Runs the hook as a sidecar of KubeVirt's feature gate Sidecar: a gRPC server on a socket in the VM's pod.

    python -m defaulter.sidecar /var/run/kubevirt-hooks/poolhouse-hardware.sock

The webhook asks KubeVirt for this sidecar when a VMI with a hardware record is created. The services are KubeVirt's
`kubevirt.hooks.info.Info` and `kubevirt.hooks.v1alpha3.Callbacks`. The launcher asks `Shutdown` when the guest has
ended, so that the pod ends too.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from defaulter import hook_server
from defaulter.vm_paths import HOOK
from poolhouse.service.protobuf import message_classes

INFO, CALLBACKS = "kubevirt.hooks.info.Info", "kubevirt.hooks.v1alpha3.Callbacks"
POINT, VERSION = "OnDefineDomain", "v1alpha3"
FIELDS = {
    "Empty": (),
    "Point": (("name", 1, "TYPE_STRING"), ("priority", 2, "TYPE_INT32")),
    "Info": (("name", 1, "TYPE_STRING"), ("points", 3, "[]Point"), ("versions", 4, "[]TYPE_STRING")),
    "Params": (("domain", 1, "TYPE_BYTES"), ("vmi", 2, "TYPE_BYTES")),
    "Result": (("domain", 1, "TYPE_BYTES"),),
}
"""the fields of KubeVirt's messages"""

MESSAGES = message_classes("poolhouse.hardware", FIELDS, "proto3")


def serve(socket: Path, ended: Callable[[], None]) -> grpc.Server:
    """Starts a server on the socket. Calls `ended` when the launcher asks the hook to end."""

    def info(_: Any, context: grpc.ServicerContext) -> Any:
        return MESSAGES["Info"](name=HOOK, points=[{"name": POINT}], versions=[VERSION])

    def define(request: Any, context: grpc.ServicerContext) -> Any:
        restored = hook_server.restore(request.vmi, request.domain, context)
        return MESSAGES["Result"](domain=restored.encode())

    def shutdown(_: Any, context: grpc.ServicerContext) -> Any:
        ended()
        return MESSAGES["Empty"]()

    callbacks = {POINT: _method("Params", define), "Shutdown": _method("Empty", shutdown)}
    return hook_server.start(socket, {INFO: {"Info": _method("Empty", info)}, CALLBACKS: callbacks})


def _method(request: str, answer: Callable[[Any, grpc.ServicerContext], Any]) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=MESSAGES[request].FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def main(arguments: list[str]) -> int:
    return hook_server.run("defaulter.sidecar", arguments, serve)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
