"""Runs the hook as a plugin of KubeVirt: a gRPC server in a sidecar, on a socket in the VM's pod.

    python -m defaulter.plugin /var/run/kubevirt-plugin/poolhouse-hardware/hook.sock

`poolhouse hook --plugin` prints what a cluster needs to run it. The service is KubeVirt's
`kubevirt.hooks.plugins.v1alpha1.DomainHookService`.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import grpc
from google.protobuf.message import DecodeError

from defaulter import hook_server
from poolhouse.service.protobuf import message_classes

PACKAGE = "kubevirt.hooks.plugins.v1alpha1"
SERVICE = f"{PACKAGE}.DomainHookService"
METHOD = "MutateDomain"
FIELDS = {
    "MutateDomainRequest": (("domain", 2, "TYPE_BYTES"), ("vmi", 3, "TYPE_BYTES")),
    "MutateDomainResponse": (("domain", 1, "TYPE_BYTES"),),
}
"""the fields that the hook uses, by message"""

_MESSAGES = message_classes(PACKAGE, FIELDS, "proto2")  # proto2 also writes empty fields


class Request(NamedTuple):
    domain: bytes = b""
    vmi: bytes = b""


def serve(socket: Path) -> grpc.Server:
    """Starts a server on the socket."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    method = grpc.unary_unary_rpc_method_handler(_mutate, request_deserializer=read, response_serializer=answer)
    return hook_server.start(socket, {SERVICE: {METHOD: method}})


def _mutate(request: Request, context: grpc.ServicerContext) -> str:
    return hook_server.restore(request.vmi, request.domain, context)


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
    return hook_server.run("defaulter.plugin", arguments, lambda socket, _: serve(socket))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
