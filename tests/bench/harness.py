"""Helpers of all benchmarks: a stack, processes of services, concurrent calls, and measurements of processes."""

import argparse
import asyncio
import gc
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import aiohttp

from controllers.main import CONNECTIONS
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kubevirt import KUBEVIRT_KINDS
from poolhouse.manifests.crd import crds
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, NotFound
from poolhouse.runtime.resource import CRDS, NAMESPACES, VMIS, VMS, Resource
from tests.bench import results
from tests.builders import manifest, owned_by
from tests.ports import free_port

T = TypeVar("T")

NAMESPACE = "bench"
CONTROL_PLANE_ONLY = ("webhook", "defaulter", "controllers", "engine")
POLL_SECONDS = 0.02
DEADLINE_SECONDS = 900
REQUESTS = re.compile(r"^kubevirt_poolhouse_api_requests_total\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def parse_options(description: str, **defaults: Any) -> argparse.Namespace:
    """Adds an option for each default, of its type. The option of a list takes several values; False adds a flag.
    Numbers are 0 or greater, and `--dir` is a stack. Exits with code 2 if an option is invalid."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        elif isinstance(default, list):
            shown = f"default: {' '.join(map(str, default))}"
            parser.add_argument(option, type=_type_of(default[0]), nargs="*", default=default, help=shown)
        elif default is None:
            parser.add_argument(
                option, type=_running_stack, help="the directory of a running stack; default: a new one"
            )
        else:
            parser.add_argument(option, type=_type_of(default), default=default, help=f"default: {default}")
    for each in (signal.SIGINT, signal.SIGTERM):  # so that the stack and the services end, too
        signal.signal(each, _interrupted)
    return parser.parse_args()


def refuse_options(problem: str) -> NoReturn:
    print(problem, file=sys.stderr)
    sys.exit(2)


def _type_of(default: Any) -> Callable[[str], Any]:
    kind = type(default)

    def parse(text: str) -> Any:
        value = kind(text)
        if not isinstance(value, str) and not 0 <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not 0 or greater")
        return value

    parse.__name__ = kind.__name__  # argparse shows it for a text that is no number
    return parse


def _running_stack(text: str) -> Path:
    if not (Path(text) / "kubeconfig").is_file():
        raise argparse.ArgumentTypeError(f"{text} has no kubeconfig: it is not the directory of a running stack")
    return Path(text)


def _interrupted(number: int, _: object) -> NoReturn:
    """Raises SystemExit, once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(results.INTERRUPTED)


def run(description: str, planning: Callable[[int], None], measure: Callable[[Path, int, int], Any]) -> None:
    """Runs a benchmark: first planning without a cluster, then VMs on a stack."""
    options = parse_options(description, dir=None, vms=1000, rounds=3, planning=[10, 1000, 10000])
    if not options.vms:
        refuse_options("--vms must be at least 1")
    section("CPU time of one reconcile at rest")
    for size in options.planning:
        planning(size)
    if options.rounds:
        with stack(options.dir) as directory:
            asyncio.run(measure(directory, options.vms, options.rounds))


# The stack and its services


@contextmanager
def stack(directory: Path | None, *options: str, without: Iterable[str] = CONTROL_PLANE_ONLY) -> Iterator[Path]:
    """Yields the directory of a running stack: the given directory, or that of a new stack with these options of
    `poolhouse up`."""
    if directory is not None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        arguments = [word for name in without for word in ("--without", name)]
        poolhouse = [sys.executable, "-m", "poolhouse.cli.main"]
        try:
            subprocess.run([*poolhouse, "up", "--dir", place, "--detach", *options, *arguments], check=True)
            yield Path(place)
        finally:
            subprocess.run([*poolhouse, "down", "--dir", place], check=False)


def document(resource: Resource, name: str, spec: Json, namespace: str = NAMESPACE, **metadata: Any) -> Json:
    return manifest(resource, name, spec, namespace, **metadata)


def vmi_of(vm: Json) -> Json:
    """Returns the VMI that KubeVirt would create for a VM."""
    metadata, template = vm["metadata"], vm["spec"]["template"]
    about = {"labels": template["metadata"]["labels"]}
    about["ownerReferences"] = owned_by(VMS, metadata["name"], metadata["uid"])
    return document(VMIS, metadata["name"], template["spec"], metadata["namespace"], **about)


@asynccontextmanager
async def new_namespace(admin: Api) -> AsyncIterator[str]:
    created = await admin.create(NAMESPACES, {"metadata": {"generateName": "bench-"}})
    name: str = created["metadata"]["name"]
    yield name
    await admin.delete(NAMESPACES, None, name)


async def connect(kubeconfig: Path, connections: int = CONNECTIONS + 1) -> Api:
    return await Api.connect(kubeconfig, user_agent="bench", max_connections=connections)


async def prepare(api: Api, *resources: Resource) -> None:
    """Installs the CRDs and the namespace, and waits until the API server serves the resources."""
    for crd in crds([*KINDS, *KUBEVIRT_KINDS]):
        with suppress(AlreadyExists):
            await api.create(CRDS, crd)
    with suppress(AlreadyExists):
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    async def served(resource: Resource) -> bool:
        with suppress(NotFound):
            await api.list(resource, NAMESPACE)
            return True
        return False

    for resource in resources:
        await poll(partial(served, resource))


@dataclass(frozen=True)
class Process:
    pid: int
    url: str

    def resident_mb(self) -> tuple[float, float]:
        """Returns the current and the peak resident memory."""
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        now, peak = (int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return now, peak

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def writes(self) -> Counter[tuple[str, str]]:
        """Returns the number of successful writes to the API server, without Leases, by verb and resource."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            text = await answer.text()
        return writes_in(text)


def writes_in(metrics: str) -> Counter[tuple[str, str]]:
    """The number of successful writes in the metrics of a service, without Leases, by verb and resource."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, count in REQUESTS.findall(metrics):
        of = dict(LABEL.findall(labels))
        if of["code"].startswith("2") and of["verb"] not in ("get", "list", "watch") and of["resource"] != "leases":
            found[of["verb"], of["resource"]] += int(float(count))
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not, and that run."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    tree = [pid]
    for each in tree:
        tree += [child for child, parent in parents.items() if parent == each]
    return tree[1:]


def cpu_seconds_of_tree(pid: int) -> float:
    """The processor time of a process and of its descendants."""
    seconds = 0.0
    for each in (pid, *descendants(pid)):
        with suppress(OSError):  # it has ended meanwhile
            seconds += Process(each, "").cpu_seconds()
    return seconds


@asynccontextmanager
async def service(module: str, *arguments: str, probe: str = "/readyz", **environment: str) -> AsyncIterator[Process]:
    """Starts a service as in its container, and waits for its probe."""
    port = free_port()
    variables = {**os.environ, "POOLHOUSE_LISTEN": f"127.0.0.1:{port}", **environment}
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=variables)  # noqa: ASYNC220
    url = f"http://127.0.0.1:{port}"

    async def ready() -> bool:
        assert process.poll() is None, f"{module} ended with exit code {process.returncode}"
        with suppress(aiohttp.ClientError):
            async with session.get(url + probe) as answer:
                return answer.status == 200
        return False

    try:
        async with aiohttp.ClientSession() as session:
            await poll(ready, every_seconds=0.1)
        yield Process(process.pid, url)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def controllers(kubeconfig: Path) -> Any:
    return service(
        "controllers.main",
        KUBECONFIG=str(kubeconfig),
        POOLHOUSE_LEADER_ELECTION="false",
        POOLHOUSE_LOG_LEVEL="WARNING",
        POOLHOUSE_DEFAULTER_URL="",
    )


# Calls


async def poll(holds: Callable[[], Awaitable[bool]], every_seconds: float = POLL_SECONDS) -> float:
    """Returns the seconds until `holds` returns True."""
    begun = time.perf_counter()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(every_seconds)
    return time.perf_counter() - begun


@asynccontextmanager
async def listening(api: Api, resource: Resource, namespace: str, saw: Callable[[Json], None]) -> AsyncIterator[None]:
    """Calls `saw` with each object that is added, changed or deleted in the namespace."""
    _, version = await api.list(resource, namespace)

    async def listen() -> None:
        nonlocal version
        while True:
            events = api.watch(resource, namespace, resource_version=version, timeout_seconds=DEADLINE_SECONDS)
            try:
                async with aclosing(events):
                    async for kind, document in events:
                        version = document["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            saw(document)
            except ApiError as error:
                print(f"the watch ended: {error}", file=sys.stderr)

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()


async def call_all(call: Callable[[T], Awaitable[Any]], arguments: Iterable[T], at_once: int = CONNECTIONS) -> float:
    """Calls with each argument, `at_once` calls in flight. Returns the total seconds."""
    waiting = iter(arguments)

    async def one_after_another() -> None:
        for argument in waiting:
            await call(argument)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one_after_another())
    return time.perf_counter() - begun


async def create_all(api: Api, resource: Resource, documents: Iterable[Json]) -> float:
    return await call_all(lambda document: api.create(resource, document), documents)


async def delete_all(api: Api, resource: Resource, documents: Iterable[Json]) -> float:
    return await call_all(lambda each: api.delete(resource, NAMESPACE, each["metadata"]["name"]), documents)


async def count(api: Api, resource: Resource = VMS, namespace: str = NAMESPACE) -> int:
    """Returns the number of objects by a list request with limit 1."""
    answer = await api.request("GET", resource.path(namespace), query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)


async def until_count(api: Api, wanted: int, resource: Resource = VMS, namespace: str = NAMESPACE) -> float:
    """Returns the seconds until the wanted number of objects exists. Fails if there are more."""

    async def reached() -> bool:
        found = await count(api, resource, namespace)
        assert not wanted or found <= wanted, f"{found} objects exist, {wanted} are wanted"
        return found == wanted

    return await poll(reached)


# Results


def cpu_ms(work: Callable[[], object], rounds: int = 7) -> float:
    """Returns the median CPU time of the calls, in milliseconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return statistics.median(times) * 1000


def percentile(seconds: list[float], hundredths: int) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[hundredths - 1]


_section = ""


def section(title: str) -> None:
    """Begins a table. Results are compared by this title, so it must not contain what was measured."""
    global _section  # noqa: PLW0603
    _section = title
    print(f"\n{title}", flush=True)


def report(what: str, measured: str, **figures: float) -> None:
    """Prints a row. `figures` are its numbers, for `tests.bench.results`, which says how to name them."""
    print(f"  {what:58} {measured}", flush=True)
    results.append(_section, what, measured, figures)


def report_ratio(what: str, bare: float, ours: float) -> None:
    report(what, f"bare {bare:.2f} s, poolhouse {ours:.2f} s, ratio {ours / bare:.2f}", ratio=ours / bare, ours_s=ours)
