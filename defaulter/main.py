"""The defaulter service: its settings, its parts, and how they start and stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import signal
import ssl
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import uvicorn
import uvloop

from defaulter.app import create
from defaulter.fields import ARCHITECTURES
from defaulter.init_process import run_under_init
from defaulter.kubevirt_defaults import ClusterConfig, InterfaceBinding, MACPolicy, Video
from defaulter.machine_types import UnavailablePolicy
from defaulter.metrics import Metrics
from defaulter.root_directories import RootDirectories
from defaulter.worker_pool import WorkerLimits, WorkerPool

KEEP_ALIVE_SECONDS = 75
"""longer than clients keep a connection: one that we close just as they use it again costs them a request"""
CERTIFICATE_SECONDS = 10.0
"""how often the files of the certificate are looked at"""
_PASSED_ON = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV", "POOLHOUSE_DIR")


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8085
    tls: Path | None = None
    state: Path | None = None
    uid: int | None = None
    gid: int | None = None
    seed: str = ""
    log_format: str = "text"
    log_level: str = "INFO"
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    limits: WorkerLimits = field(default_factory=WorkerLimits)


def read(environment: dict[str, str]) -> Settings:
    """Raises ValueError with a sentence for a person."""
    host, _, port = environment.get("POOLHOUSE_LISTEN", "127.0.0.1:8085").rpartition(":")
    tls, state = environment.get("POOLHOUSE_TLS_DIR"), environment.get("POOLHOUSE_STATE_DIR")
    uid, gid = _user(environment.get("POOLHOUSE_WORKER_UID"))
    certificate = Path(tls) if tls and (Path(tls) / "tls.crt").exists() else None
    return Settings(
        host=host.strip("[]"),
        port=_number("POOLHOUSE_LISTEN", port, int),
        tls=certificate,
        state=Path(state).absolute() if state else None,
        uid=uid,
        gid=gid,
        seed=environment.get("POOLHOUSE_IDENTITY_SEED", ""),
        log_format=environment.get("POOLHOUSE_LOG_FORMAT", "text"),
        log_level=environment.get("POOLHOUSE_LOG_LEVEL", "INFO").upper(),
        cluster=ClusterConfig(
            architecture=_one_of(environment, "POOLHOUSE_ARCHITECTURE", tuple(ARCHITECTURES), "amd64"),
            binding=_one_of(environment, "POOLHOUSE_DEFAULT_NETWORK", get_args(InterfaceBinding), "bridge"),
            cpu_model=environment.get("POOLHOUSE_CPU_MODEL") or "host-model",
            machines=_pairs(environment.get("POOLHOUSE_MACHINES", "")),
            unavailable_machines=_one_of(
                environment, "POOLHOUSE_UNOFFERED_MACHINES", get_args(UnavailablePolicy), "warn"
            ),
            macs=_one_of(environment, "POOLHOUSE_MACS", get_args(MACPolicy), "deterministic"),
            video=_one_of(environment, "POOLHOUSE_VIDEO", get_args(Video), "fill"),
            record=_one_of(environment, "POOLHOUSE_HARDWARE_RECORD", ("false", "true"), "false") == "true",
        ),
        limits=WorkerLimits(
            workers=_number("POOLHOUSE_WORKERS", environment.get("POOLHOUSE_WORKERS", str(_processors())), int),
            deadline_seconds=_number(
                "POOLHOUSE_DEADLINE_SECONDS", environment.get("POOLHOUSE_DEADLINE_SECONDS", "2"), float
            ),
            queue_length=_number("POOLHOUSE_WAITING", environment.get("POOLHOUSE_WAITING", "512"), int),
            max_requests=_number("POOLHOUSE_RECYCLE", environment.get("POOLHOUSE_RECYCLE", "5000"), int),
        ),
    )


def _processors() -> int:
    return max(2, min(4, len(os.sched_getaffinity(0))))


def _number(name: str, text: str, kind: Any) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if value <= 0 and name != "POOLHOUSE_LISTEN":
        raise ValueError(f"{name} must be a number above nought, not {text!r}")
    return value


def _one_of(environment: dict[str, str], name: str, choices: tuple[str, ...], default: str) -> Any:
    value = environment.get(name) or default
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _pairs(text: str) -> dict[str, str]:
    """`q35=pc-q35-rhel9.6.0,virt=virt-rhel9.6.0`"""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(alias and real for alias, _, real in pairs):
        raise ValueError(f"POOLHOUSE_MACHINES must be ALIAS=TYPE,... and not {text!r}")
    return {alias.strip(): real.strip() for alias, _, real in pairs}


def _user(text: str | None) -> tuple[int | None, int | None]:
    """Whom workers run as: nobody, unless told, when we may choose at all. libvirt as root behaves differently."""
    if os.geteuid() != 0:
        return None, None
    try:
        entry = pwd.getpwuid(int(text)) if text and text.isdigit() else pwd.getpwnam(text or "nobody")
    except KeyError:
        if text and text.isdigit():
            return int(text), int(text)
        raise ValueError(f"POOLHOUSE_WORKER_UID: there is no user {text or 'nobody'!r}") from None
    return entry.pw_uid, entry.pw_gid


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": self.formatTime(record), "level": record.levelname, "logger": record.name}
        return json.dumps({**entry, "message": record.getMessage()})


def _log(settings: Settings) -> None:
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if settings.log_format == "json" else text)
    logging.basicConfig(level=settings.log_level, handlers=[handler])


async def serve(settings: Settings) -> None:
    arguments = {"uid": settings.uid, "gid": settings.gid, "seed": settings.seed, "cluster": asdict(settings.cluster)}
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    workers = WorkerPool(
        settings.limits, RootDirectories(settings.state, settings.uid, settings.gid), arguments, environment
    )
    config = uvicorn.Config(
        create(workers, Metrics(workers)),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls / "tls.crt" if settings.tls else None,
        ssl_keyfile=str(settings.tls / "tls.key") if settings.tls else None,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=2048,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
    )
    config.load()
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(workers.run())]
        if settings.tls is not None and config.ssl is not None:
            tasks.append(group.create_task(_renew(config.ssl, settings.tls)))
        await server.serve()
        for task in tasks:
            task.cancel()


async def _renew(context: ssl.SSLContext, directory: Path) -> None:
    """Serves a renewed certificate to new connections, without a restart."""
    seen = (directory / "tls.crt").stat().st_mtime_ns
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        try:
            now = (directory / "tls.crt").stat().st_mtime_ns
            if now != seen:
                context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
                seen = now
        except (OSError, ssl.SSLError) as error:
            logging.getLogger(__name__).warning("the certificate cannot be read anew: %s", error)


def main() -> int:
    return run_under_init(_main, first=os.getpid() == 1)


def _main() -> int:
    try:
        settings = read(dict(os.environ))
    except ValueError as error:
        print(f"poolhouse defaulter: {error}", file=sys.stderr)
        return 2
    _log(settings)
    # uvicorn raises the signal that ended it once more when it has drained. That must not end us before our workers
    # are gone and their directories with them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
