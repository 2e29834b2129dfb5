"""The webhook and the defaulter in this process, called by ASGI.

The cluster behind the webhook grants everything and holds nothing. The defaulter has real workers with the real
libvirt, or none: then its own code runs up to the first define, which is refused.
"""

import asyncio
import json
import os
from asyncio import Runner
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from defaulter.app import create as create_defaulter
from defaulter.contract import (
    DEFAULTS_PATH,
    Defaulter,
    DefaultingResponse,
    ForbiddenChange,
)
from defaulter.errors import DomainRejected
from defaulter.handler import HandlerConfig, handle
from defaulter.main import INHERITED_VARIABLES
from defaulter.metrics import Metrics as DefaulterMetrics
from defaulter.root_directories import RootDirectories
from defaulter.settings import Settings
from defaulter.worker_pool import WorkerLimits, WorkerPool
from defaulter.worker_process import WorkerProcess, start_worker
from poolhouse.api.apimachinery.merge_patch import apply_patch
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import POOL as POOL_LABEL
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.clock import ApiServerClock
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.metrics import Metrics as RuntimeMetrics
from poolhouse.runtime.transport import Request
from tests.fuzz.oracles import Finding, check_status
from tests.webhook.builders import unreadable_vmi
from webhook.admission import Admission
from webhook.app import create_app
from webhook.conflicts import DefaultPoolConflicts, DiskConflicts, PolicyConflicts
from webhook.defaulting import DefaultingHandler
from webhook.dryrun import DryRun
from webhook.hardware_drift import HardwareDrift
from webhook.metrics import Metrics
from webhook.parts import WebhookParts
from webhook.rate_limit import RateLimiter
from webhook.references import ReferenceReview
from webhook.templates import TemplateReview

Answer = tuple[int, bytes]

SEED = "fuzz"
PATIENCE_SECONDS = 60.0
"""Time is measured in processor time, because the machine may be busy."""
WORKER_CPU_SECONDS = 1.7
"""the defaulter's deadline, here of a worker's processor time"""
TOKEN = (b"authorization", b"Bearer fuzz")


async def post(app: ASGIApp, path: str, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
    """The status and body of the answer to a request."""
    headers = [(b"content-type", b"application/json"), TOKEN, *headers]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "http_version": "1.1", "scheme": "http", "server": ("fuzz", 1), "root_path": ""}
    waiting = [{"type": "http.request", "body": body}]
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


class EmptyCluster:
    """The transport of an API server that grants every review, accepts every object and has none."""

    def __init__(self) -> None:
        self.metrics = RuntimeMetrics(CollectorRegistry())
        self.clock = ApiServerClock(self.metrics)

    async def send(self, request: Request) -> Json:
        if "accessreviews" in request.path:
            return {"status": {"allowed": True}}
        if request.method == "GET" and request.resource.endswith("s") and request.path.endswith(request.resource):
            return {"metadata": {"resourceVersion": "1"}, "items": []}
        if request.method == "GET":
            raise NotFound("not found", status=404)
        body: Json = json.loads(json.dumps(request.body))
        return body


class ForAnyUser(Api):
    """The client of a cluster that answers every user alike."""

    def with_token(self, token: Callable[[], str], user: str = "") -> Api:
        return self


NAMESPACE, POOL_NAME = "shop", "web"
RUNNING_VM = {"ready": True, "created": True, "printableStatus": "Running"}
RUNNING_VMI = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
EMPTY: Json = {}


class PoolCluster(EmptyCluster):
    """An API server with a pool of VMs that run."""

    def __init__(self, vms: int = 5, spec: Json | None = None) -> None:
        """The pool has this spec, or one with as many replicas."""
        super().__init__()
        vm = {"running": True, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {}}}}
        spec = spec or {"replicas": vms, "template": {"spec": vm}}
        self._pool = _stored(_object(POOL.api_version, POOL.kind, POOL_NAME, spec))
        self._items: dict[str, list[Json]] = {POOL.plural: [self._pool]}
        for number in range(1, vms + 1):
            self.add_vm(_object("kubevirt.io/v1", "VirtualMachine", f"{POOL_NAME}-{number}", vm))

    def add_vm(self, document: Json, vm_change: Json = EMPTY, vmi_change: Json = EMPTY) -> None:
        """A VM of the pool that runs, and its VMI, with these merge patches."""
        vm = apply_patch(_stored(document, self._pool), {"status": RUNNING_VM})
        template = document["spec"]["template"]
        vmi = _object("kubevirt.io/v1", "VirtualMachineInstance", vm["metadata"]["name"], template.get("spec") or {})
        vmi["metadata"] |= {"labels": (template.get("metadata") or {}).get("labels") or {}}
        vmi = apply_patch(_stored(vmi, vm), {"status": RUNNING_VMI})
        self._items.setdefault("virtualmachines", []).append(apply_patch(vm, vm_change))
        self._items.setdefault("virtualmachineinstances", []).append(apply_patch(vmi, vmi_change))

    async def send(self, request: Request) -> Json:
        found = await super().send(request)
        return {**found, "items": self._items.get(request.resource, [])} if "items" in found else found


def _object(api_version: str, kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _stored(document: Json, owner: Json | None = None) -> Json:
    """The object as the API server holds it, with the labels of the pool's VMs."""
    given, labels = document["metadata"], {POOL_LABEL: POOL_NAME, "app": "web"}
    metadata = {**given, "uid": f"{document['kind']}-{given['name']}", "resourceVersion": "1"}
    metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels | given.get("labels", {})}
    if owner is not None:
        owned = owner["metadata"]
        reference = controller_reference(owner["apiVersion"], owner["kind"], owned["name"], owned["uid"])
        metadata["ownerReferences"] = [reference]
    return {**document, "metadata": metadata}


class NoLibvirt:
    """Refuses each define, so that the defaulter's own code runs without libvirt."""

    failed = False

    @contextmanager
    def scratch(self) -> Iterator[Any]:
        def define(text: str) -> str:
            raise DomainRejected("no libvirt is asked")

        yield define

    def machines(self) -> dict[str, dict[str, str | None]]:
        x86 = {"q35": "pc-q35-7.2", "pc-q35-7.2": None, "pc": "pc-i440fx-7.2", "pc-i440fx-7.2": None}
        return {"x86_64": x86, "aarch64": {"virt": "virt-7.2", "virt-7.2": None}}

    def cpu_models(self, arch: str) -> frozenset[str]:
        return frozenset({"qemu64", "Skylake-Client"})

    def knows_cpu_feature(self, arch: str, name: str) -> bool:
        return name in ("vmx", "svm", "pcid")

    def version(self) -> str:
        return "9.0.0"

    def qemu(self) -> str:
        return "7.2.0"


class LocalDefaulter(Defaulter):
    """The client of a defaulter in this process. What a user would only see as a warning is a finding."""

    def __init__(self, app: ASGIApp | None) -> None:
        """Without an app, the defaulter has no libvirt."""
        session: Any = _Session(app)
        super().__init__("http://fuzz", PATIENCE_SECONDS, session)

    async def complete(self, document: Json, **given: Any) -> DefaultingResponse:
        try:
            return await super().complete(document, **given)
        except ForbiddenChange as error:
            raise Finding("value changed", str(error.paths[:3])) from error


@dataclass
class _Response:
    status: int
    content: bytes

    async def read(self) -> bytes:
        return self.content


class _Session:
    """What `Defaulter` uses of an HTTP session."""

    def __init__(self, app: ASGIApp | None) -> None:
        self._app = app
        self._config = HandlerConfig({"video": "fill", "record": True}, SEED)

    @asynccontextmanager
    async def request(
        self, method: str, url: str, *, data: bytes, headers: Mapping[str, str], **_: Any
    ) -> AsyncIterator[_Response]:
        if self._app is None:
            no_libvirt: Any = NoLibvirt()
            answer = handle(data, self._config, no_libvirt)
        else:
            sent = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            sent = [(name, value) for name, value in sent if name != b"content-type"]  # `post` has it
            answer = await post(self._app, DEFAULTS_PATH, data, sent)
        check_status(*answer)
        yield _Response(*answer)


class Workers:
    """One real worker below a service, as `poolhouse defaulter` starts it."""

    def __init__(self, cache: Path) -> None:
        settings = Settings.read({})
        uid, gid = settings.user
        config = {"uid": uid, "gid": gid, "seed": SEED, "overrides": {"video": "fill", "record": True}}
        environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        limits = WorkerLimits(workers=1, spares=0, deadline_seconds=PATIENCE_SECONDS)
        roots = RootDirectories(None, uid, gid, warm=cache)
        self.pool = WorkerPool(limits, roots, config, environment, start=self._start)
        self.app = create_defaulter(self.pool, DefaulterMetrics(self.pool))
        self._worker: WorkerProcess | None = None
        self._cpu_seconds = 0.0

    async def _start(self, root: Path, environment: dict[str, str]) -> WorkerProcess:
        self._worker = await start_worker(root, environment)
        return self._worker

    def check(self) -> None:
        """Finds a worker that was replaced for a document, that has started a program, or that took too long."""
        bad = [reason for reason in ("died", "late") if self.pool.counts.restarts.pop(reason, 0)]
        if bad:
            raise Finding("crash", f"the worker was replaced: {', '.join(bad)}")
        if self._worker is None:
            return
        pid = self._worker.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return  # the worker is being replaced, because it is old
        if children:
            raise Finding("exec", f"the worker has the children {children}")
        before, self._cpu_seconds = self._cpu_seconds, self._worker.cpu_seconds()
        if before and self._cpu_seconds - before > WORKER_CPU_SECONDS:
            raise Finding("hang", f"{self._cpu_seconds - before:.1f} s of a worker")


@contextmanager
def running(runner: Runner, cache: Path) -> Iterator[Workers]:
    """The workers of a defaulter while the runner runs. Raises RuntimeError without libvirt."""
    workers = Workers(cache)

    async def start() -> asyncio.Task[None]:
        running = asyncio.create_task(workers.pool.run())
        while not workers.pool.counts.ready:
            if running.done() or workers.pool.counts.start_error:
                raise RuntimeError(f"no libvirt here: {workers.pool.counts.start_error}; see --without-libvirt")
            await asyncio.sleep(0.05)
        return running

    async def stop(running: asyncio.Task[None]) -> None:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    running = runner.run(start())
    try:
        yield workers
    finally:
        runner.run(stop(running))


def create_webhook(defaulter: Defaulter, cluster: EmptyCluster | None = None) -> ASGIApp:
    """The webhook with all its paths. Without `cluster`, its API server grants every right and has no objects."""
    transport: Any = cluster or EmptyCluster()
    api = ForAnyUser(transport, "fuzz")
    handler = DefaultingHandler(
        defaulter,
        seed=SEED,
        budget_seconds=PATIENCE_SECONDS,
        now=monotonic,
        breaker=CircuitBreaker(),
        find_vmi=unreadable_vmi,
    )
    templates = partial(TemplateReview, instancetypes=InstancetypeReader(api, monotonic))
    checks = (DefaultPoolConflicts, templates, ReferenceReview, PolicyConflicts, DiskConflicts)
    return create_app(
        WebhookParts(
            api=api,
            admission=Admission(
                defaulting=handler,
                checks=tuple(check(api, budget_seconds=PATIENCE_SECONDS) for check in checks),
                drift=HardwareDrift(now=monotonic),
            ),
            dry_run=DryRun(defaulter, SEED),
            metrics=Metrics(CollectorRegistry(), ["VirtualMachine", "VirtualMachinePool"]),
            rate_limiter=RateLimiter(per_second=1e9, burst=10**9),
            address_limiter=RateLimiter(per_second=1e9, burst=10**9),
        )
    )
