"""The gRPC server of the hook that restores recorded hardware, for each way in which KubeVirt runs hooks."""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import ParseError

import grpc

from defaulter import hook

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0

Services = Mapping[str, Mapping[str, grpc.RpcMethodHandler]]
"""the methods of each service, by name"""


def restore(vmi: bytes, domain: bytes, context: grpc.ServicerContext) -> str:
    """Returns the domain with the recorded hardware of the VMI. Fails the call if one of them is invalid."""
    try:
        return hook.restore_for_vmi(vmi.decode(), domain.decode())
    except (ValueError, ParseError) as error:
        log.error("the domain is refused: %s", error)
        _abort(context, str(error))


def _abort(context: grpc.ServicerContext, message: str) -> NoReturn:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, message)
    raise AssertionError("abort raises")


def start(socket: Path, services: Services) -> grpc.Server:
    """Starts a server on the socket. KubeVirt regards the hook as ready once the socket exists."""
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="hook"))
    handlers = (grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def run(module: str, arguments: list[str], serve: Callable[[Path, Callable[[], None]], grpc.Server]) -> int:
    """Runs a module whose only argument is the path of the socket, until SIGTERM, SIGINT or a call of the function that
    `serve` gets. Returns the exit code."""
    if len(arguments) != 1:
        print(f"usage: python -m {module} SOCKET", file=sys.stderr)
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
