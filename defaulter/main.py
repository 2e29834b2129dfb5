"""Starts and stops the defaulter service."""

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path

from defaulter.app import create
from defaulter.init_process import run_under_init
from defaulter.metrics import Metrics
from defaulter.root_directories import RootDirectories
from defaulter.settings import Settings
from defaulter.worker_pool import WorkerPool
from poolhouse.service import lifecycle
from poolhouse.service.server import serve

INHERITED_VARIABLES = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV", "POOLHOUSE_DIR")
"""environment variables that the workers inherit"""


def serve_defaults(settings: Settings) -> Awaitable[None]:
    roots = RootDirectories(Path(settings.state).absolute() if settings.state else None, *settings.user)
    # The service uses plain HTTP if the directory contains no certificate.
    tls = settings.tls if settings.tls is not None and (settings.tls / "tls.crt").exists() else None
    return run(settings, roots, tls)


async def run(settings: Settings, roots: RootDirectories, tls: Path | None) -> None:
    uid, gid = settings.user
    config = {"uid": uid, "gid": gid, "seed": settings.seed, "overrides": settings.overrides}
    environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    workers = WorkerPool(settings.limits, roots, config, environment)
    app = create(workers, Metrics(workers))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(workers.run(), name="workers")
        try:
            # The server is not a task of the group: it stops first, while the workers still answer its last requests.
            await serve(app, settings.host, settings.port, tls)
        finally:
            running.cancel()


def main() -> int:
    return run_under_init(lambda: lifecycle.start("defaulter", Settings.read, serve_defaults), first=os.getpid() == 1)


if __name__ == "__main__":
    sys.exit(main())
