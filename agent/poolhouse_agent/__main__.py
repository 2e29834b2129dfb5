"""`poolhouse-agent`: the command that systemd starts in the VM."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import signal
from functools import partial
from pathlib import Path

from poolhouse_agent.launcher import Launcher
from poolhouse_agent.podman import Podman
from poolhouse_agent.runner import Runner
from poolhouse_agent.server import new_server, parse
from poolhouse_agent.store import Store
from poolhouse_agent.tls import server_credentials

log = logging.getLogger("poolhouse_agent")

STOP_SECONDS = 1.0


def main() -> None:
    parser = new_parser()
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    for directory in (options.state_dir, options.runtime_dir):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(options.runtime_dir / "agent-lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another agent uses {options.runtime_dir}")
    default = json.loads(options.application.read_text()) if options.application else {}
    launcher = Launcher(options.runtime_dir, options.state_dir, Podman.find(options.podman_cgroups))
    runner = Runner(launcher, Store(options.runtime_dir, options.state_dir), partial(parse, default=default))
    asyncio.run(serve(runner, options.listen, options.tls_dir))


def new_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="poolhouse-agent", description="Runs the containers of a Pod in this VM.")
    parser.add_argument("--listen", default="0.0.0.0:8200", help="address and port (default: %(default)s)")
    parser.add_argument(
        "--tls-dir", type=Path, help="directory with tls.crt, tls.key and ca.crt, whose certificates callers must have"
    )
    parser.add_argument(
        "--state-dir", type=Path, default=Path("/var/lib/poolhouse-agent"), help="logs, emptyDir volumes"
    )
    parser.add_argument(
        "--runtime-dir", type=Path, default=Path("/run/poolhouse-agent"), help="the Pod with its Secrets"
    )
    parser.add_argument("--application", type=Path, help="JSON of a PodSpec, for a Pod without containers")
    parser.add_argument("--podman-cgroups", default="enabled", help="a value of `podman run --cgroups`")
    return parser


async def serve(runner: Runner, listen: str, tls: Path | None) -> None:
    """Serves until SIGTERM or SIGINT. The containers go on."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = new_server(runner)
    port = server.add_secure_port(listen, server_credentials(tls)) if tls else server.add_insecure_port(listen)
    if port == 0:
        raise SystemExit(f"cannot listen at {listen}")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(runner.run())
        await runner.adopted.wait()
        await server.start()
        how = "with TLS" if tls else "in plain text"
        log.info("listening %s at %s:%d", how, listen.rpartition(":")[0], port)
        await stopped.wait()
        await server.stop(STOP_SECONDS)
        running.cancel()


if __name__ == "__main__":
    main()
