"""A substitute for kubelets, Services, Deployments and Jobs in one namespace of a real API server.

A container runs as a local process with the environment, the probes and the ServiceAccount token of its Pod. The status
of Deployments and Jobs shows the result. A Service is a port on loopback that forwards to its ready Pods. Fields that
the chart does not use are not supported.

tests/node has all of this for real, but needs root and minutes. This substitute stays because it runs on every machine
beside the other tests, and because it records which rights the services use and starts the engine of VMs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, NotFound
from poolhouse.runtime.resource import DEPLOYMENTS, SECRETS, Resource
from tests.charts.rbac_recorder import Recorder
from tests.ports import free_port
from tests.resources import SERVICES
from tests.tokens import token_of

Json = dict[str, Any]

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
PERIOD_SECONDS = 0.5
ENTRYPOINT = (sys.executable, "-P", "-m", "poolhouse.cli.main")
ROOT = Path(__file__).resolve().parent.parent.parent
INHERITED = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR")


@dataclass(eq=False)
class Pod:
    labels: dict[str, str]
    template: str
    spec: Json
    process: asyncio.subprocess.Process
    port: int
    ready: bool = False
    failed_probes: int = 0
    next_probe: float = 0.0
    ending: asyncio.Task[None] | None = None
    restarts: int = 0

    @property
    def container(self) -> Json:
        found: Json = self.spec["containers"][0]
        return found


@dataclass
class Balancer:
    """Forwards connections from a port to the ready Pods of a Service."""

    port: int
    turn: Iterator[int] = field(default_factory=count)
    selector: dict[str, str] | None = None


class Kubelet:
    def __init__(self, kubeconfig: Path, namespace: str, logs: Path) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self.logs = logs
        self.recorder = Recorder(kubeconfig)
        self._balancers: dict[str, Balancer] = {}
        self._balancers_lock = threading.Lock()  # tests ask for addresses while the thread of the kubelet runs
        self._pods: dict[str, list[Pod]] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._sets: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._names = count(1)
        # Readable by other users, because the workers of the defaulter run as `nobody`.
        self._disk = Path(tempfile.mkdtemp(prefix="poolhouse-kubelet-"))
        self._disk.chmod(0o711)
        self._failure: BaseException | None = None

    def address(self, service: str) -> str:
        """HOST:PORT of a Service, which need not exist yet."""
        with self._balancers_lock:
            if service not in self._balancers:
                self._balancers[service] = Balancer(free_port())
            return f"127.0.0.1:{self._balancers[service].port}"

    def _known_balancers(self) -> list[tuple[str, Balancer]]:
        with self._balancers_lock:
            return list(self._balancers.items())

    def pods(self, deployment: str) -> list[Pod]:
        return [pod for pod in self._pods.get(deployment, []) if pod.ending is None]

    def ending(self, deployment: str) -> list[Pod]:
        """The terminating Pods."""
        return [pod for pod in self._pods.get(deployment, []) if pod.ending is not None and not pod.ending.done()]

    def __enter__(self) -> Kubelet:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(180)
        shutil.rmtree(self._disk, ignore_errors=True)
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failure = error

    async def _run(self) -> None:
        unchecked = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with (
            await Api.connect(self._kubeconfig, user_agent="kubelet", timeout_seconds=60) as self._api,
            aiohttp.ClientSession(connector=unchecked, timeout=aiohttp.ClientTimeout(total=20)) as self._probes,
            self.recorder,
        ):
            listening: dict[str, asyncio.Server] = {}
            try:
                while not self._stop.is_set():
                    for name, balancer in self._known_balancers():
                        if name not in listening:
                            listening[name] = await self._listen(balancer)
                    with contextlib.suppress(ApiError):
                        await self._sync()
                    await asyncio.sleep(PERIOD_SECONDS)
            finally:
                for server in listening.values():
                    server.close()
                for pod in [pod for pods in self._pods.values() for pod in pods]:
                    with contextlib.suppress(ProcessLookupError):
                        pod.process.kill()
                    await pod.process.wait()
                for task in [*self._tasks, *self._jobs.values()]:
                    task.cancel()
                await asyncio.gather(*self._tasks, *self._jobs.values(), return_exceptions=True)

    async def _sync(self) -> None:
        services, _ = await self._api.list(SERVICES, self._namespace)
        there = {each["metadata"]["name"]: each for each in services}
        for name in there:
            self.address(name)
        for name, balancer in self._known_balancers():
            balancer.selector = there[name]["spec"].get("selector") if name in there else None
        deployments, _ = await self._api.list(DEPLOYMENTS, self._namespace)
        for name in self._pods.keys() - {each["metadata"]["name"] for each in deployments}:
            for pod in self.pods(name):
                self._end(pod)
        for deployment in deployments:
            await self._deploy(deployment)
        jobs, _ = await self._api.list(JOBS, self._namespace)
        for job in jobs:
            uid = job["metadata"]["uid"]
            if self._is_pending(uid) and not job.get("status", {}).get("conditions"):
                self._jobs[uid] = asyncio.create_task(self._job(job))

    def _is_pending(self, job: str) -> bool:
        """Whether the Job has not run, or an API error has stopped it. Raises other errors."""
        task = self._jobs.get(job)
        if task is None or not task.done():
            return task is None
        if isinstance(task.exception(), ApiError):
            return True
        task.result()
        return False

    async def _deploy(self, deployment: Json) -> None:
        """A rolling update with maxSurge 1 and maxUnavailable 0."""
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        template, wanted = json.dumps(spec["template"], sort_keys=True), int(spec["replicas"])
        await asyncio.gather(*(self._probe(pod) for pod in self.pods(name)))
        alive = self.pods(name)
        new = [pod for pod in alive if pod.template == template]
        old = [pod for pod in alive if pod.template != template]
        ready = [pod for pod in alive if pod.ready]
        if len(new) < wanted and len(alive) < wanted + 1:
            self._pods.setdefault(name, []).append(await self._start(spec["template"], template))
        elif len(new) > wanted:
            self._end(new[-1])
        elif old and (len(ready) > wanted or not old[0].ready):
            self._end(old[0])
        await self._replica_set(deployment, sum(pod.ready for pod in new))
        await self._report(deployment, new, old)

    async def _replica_set(self, deployment: Json, ready: int) -> None:
        """Writes the ReplicaSet of the current template. Helm waits for its status."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        template = json.dumps(spec["template"], sort_keys=True)
        stamp = hashlib.sha256(f"{metadata['uid']}{template}".encode()).hexdigest()[:10]
        name = f"{metadata['name']}-{stamp}"
        if self._sets.get(name) == ready:
            return
        labels = {**spec["template"]["metadata"]["labels"], "pod-template-hash": stamp}
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "controller": True, "blockOwnerDeletion": True}
        owner |= {"name": metadata["name"], "uid": metadata["uid"]}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "namespace": self._namespace,
                "name": name,
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [owner],
            },
            "spec": {
                "replicas": spec["replicas"],
                "selector": {"matchLabels": {**spec["selector"]["matchLabels"], "pod-template-hash": stamp}},
                "template": {**spec["template"], "metadata": {**spec["template"]["metadata"], "labels": labels}},
            },
        }
        with contextlib.suppress(AlreadyExists):
            await self._api.create(REPLICA_SETS, body)
        status = {
            "observedGeneration": 1,
            "replicas": ready,
            "fullyLabeledReplicas": ready,
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        await self._api.patch(REPLICA_SETS, self._namespace, name, {"status": status}, subresource="status")
        self._sets[name] = ready

    async def _report(self, deployment: Json, new: list[Pod], old: list[Pod]) -> None:
        now, wanted = _now(), deployment["spec"]["replicas"]
        ready = sum(pod.ready for pod in (*new, *old))
        available = {"type": "Available", "reason": "Substitute", "status": "True" if ready >= wanted else "False"}
        done = len(new) == wanted and not old and ready >= wanted
        reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
        progressing = {"type": "Progressing", "status": "True", "reason": reason}
        kept = deployment.get("status", {}).get("conditions") or []
        if [(each["type"], each["status"], each["reason"]) for each in kept] == [
            (each["type"], each["status"], each["reason"]) for each in (available, progressing)
        ]:
            conditions = kept
        else:
            conditions = [
                {**each, "lastUpdateTime": now, "lastTransitionTime": now} for each in (available, progressing)
            ]
        numbers = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(new) + len(old),
            "updatedReplicas": len(new),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, wanted - ready),
        }
        status = {**numbers, "conditions": conditions}
        if status != {"unavailableReplicas": 0, **deployment.get("status", {})}:
            with contextlib.suppress(NotFound):
                await self._api.patch(
                    DEPLOYMENTS,
                    self._namespace,
                    deployment["metadata"]["name"],
                    {"status": status},
                    subresource="status",
                )

    async def _start(self, template: Json, stamp: str) -> Pod:
        port = free_port()
        process = await self._spawn(template["spec"], port)
        return Pod(template["metadata"]["labels"], stamp, template["spec"], process, port)

    async def _spawn(self, spec: Json, port: int) -> asyncio.subprocess.Process:
        (container,) = spec["containers"]
        program, *arguments = container["command"]
        assert program == "poolhouse", container["command"]
        name = f"{spec['serviceAccountName']}-{next(self._names)}"
        volumes = self._volumes(spec, container, self._disk / name, await self._secrets(spec))
        environment = self._environment(container)
        environment["POOLHOUSE_LISTEN"] = f"127.0.0.1:{port}"
        environment["POOLHOUSE_DIR"] = str(self.logs)  # identifies the workers of this defaulter
        token = ""
        if spec["automountServiceAccountToken"]:
            token = await token_of(self._api, self._namespace, spec["serviceAccountName"])
        there = {path: str(directory) for path, directory in volumes.items()}
        environment = {key: there.get(value, value) for key, value in environment.items()}
        environment |= {key: os.environ[key] for key in INHERITED if key in os.environ}
        environment["PYTHONPATH"] = str(ROOT)  # in a second work tree, the environment has the packages of the first
        if token:
            environment["KUBECONFIG"] = str(await self._recorder_kubeconfig(spec["serviceAccountName"], name, token))
        command = [*ENTRYPOINT, *arguments]
        with (self.logs / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def _secrets(self, spec: Json) -> dict[str, Json]:
        """The data of the mounted Secrets, by the name of the volume."""
        names = {each["name"]: each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each}
        return {volume: (await self._api.get(SECRETS, self._namespace, name))["data"] for volume, name in names.items()}

    def _volumes(self, spec: Json, container: Json, disk: Path, secrets: Mapping[str, Json]) -> dict[str, Path]:
        """Creates a directory for each mount path, with the files of a Secret."""
        found = {}
        for mount in container["volumeMounts"]:
            assert any(v["name"] == mount["name"] and v.keys() & {"emptyDir", "secret"} for v in spec["volumes"]), mount
            there = disk / mount["name"]
            there.mkdir(parents=True, exist_ok=True)
            disk.chmod(0o711)
            there.chmod(0o777)
            for file, content in secrets.get(mount["name"], {}).items():
                (there / file).write_bytes(base64.b64decode(content))
            found[mount["mountPath"]] = there
        return found

    def _environment(self, container: Json) -> dict[str, str]:
        found = {}
        for each in container["env"]:
            value = each.get("value", "")
            if source := each.get("valueFrom"):
                assert source["fieldRef"]["fieldPath"] == "metadata.namespace", source
                value = self._namespace
            found[each["name"]] = self._with_local_address(value)
        return found

    def _with_local_address(self, value: str) -> str:
        """Replaces the name of a Service in a URL by its address on loopback."""
        if "://" not in value:
            return value
        for service in ("webhook", "controllers", "defaulter"):
            host = f"poolhouse-{service}.{self._namespace}.svc:"
            if host in value:
                return f"{value.split('://')[0]}://{self.address(f'poolhouse-{service}')}"
        return value

    async def _recorder_kubeconfig(self, account: str, name: str, token: str) -> Path:
        """Writes a kubeconfig that uses the recorder as a proxy."""
        server = await self.recorder.server(account)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        file = self.logs / f"{name}.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    async def _probe(self, pod: Pod) -> None:
        """Probes a ready Pod once in its probe's period, and each other Pod at once."""
        if pod.process.returncode is not None:
            pod.ready = False
            pod.restarts += 1
            await asyncio.sleep(min(5.0, 0.3 * pod.restarts))
            pod.process = await self._spawn(pod.spec, pod.port)
            return
        now = asyncio.get_running_loop().time()
        if pod.ready and now < pod.next_probe:
            return
        readiness = pod.container["readinessProbe"]
        pod.next_probe = now + readiness["periodSeconds"]
        threshold, probe = readiness["failureThreshold"], readiness["httpGet"]
        url = f"{probe['scheme'].lower()}://127.0.0.1:{pod.port}{probe['path']}"
        try:
            async with self._probes.get(url) as answer:
                good = answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError):
            good = False
        pod.failed_probes = 0 if good else pod.failed_probes + 1
        pod.ready = good or (pod.ready and pod.failed_probes < threshold)

    def _end(self, pod: Pod) -> None:
        """Removes the Pod from its Services, waits for its preStop hook, and stops it."""
        pod.ready = False
        pod.ending = asyncio.create_task(self._stop_pod(pod))
        self._track(pod.ending)

    async def _stop_pod(self, pod: Pod) -> None:
        await asyncio.sleep(pod.container["lifecycle"]["preStop"]["sleep"]["seconds"])
        with contextlib.suppress(ProcessLookupError):
            pod.process.terminate()
        try:
            async with asyncio.timeout(pod.spec["terminationGracePeriodSeconds"]):
                await pod.process.wait()
        except TimeoutError:
            pod.process.kill()
            await pod.process.wait()

    async def _job(self, job: Json) -> None:
        spec, metadata, began = job["spec"], job["metadata"], _now()
        failed = 0
        async with asyncio.timeout(spec["activeDeadlineSeconds"]):
            while True:
                process = await self._spawn(spec["template"]["spec"], free_port())
                if await process.wait() == 0 or (failed := failed + 1) > spec["backoffLimit"]:
                    break
        good = process.returncode == 0
        types = ("SuccessCriteriaMet", "Complete") if good else ("FailureTarget", "Failed")
        condition = {"status": "True", "lastProbeTime": _now(), "lastTransitionTime": _now(), "reason": "Substitute"}
        status: Json = {"startTime": began, "conditions": [{**condition, "type": each} for each in types]}
        status |= {"failed": failed} if failed else {}
        status |= {"succeeded": 1, "completionTime": _now()} if good else {}
        with contextlib.suppress(NotFound):
            await self._api.patch(JOBS, self._namespace, metadata["name"], {"status": status}, subresource="status")

    async def _listen(self, balancer: Balancer) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pods = [
                pod
                for pods in self._pods.values()
                for pod in pods
                if pod.ready
                and balancer.selector
                and pod.ending is None
                and balancer.selector.items() <= pod.labels.items()
            ]
            if not pods:
                writer.close()
                return
            pod = pods[next(balancer.turn) % len(pods)]
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", pod.port)
                self._track(asyncio.create_task(_forward(far_reader, writer)))
                await _forward(reader, far_writer)

        return await asyncio.start_server(accept, "127.0.0.1", balancer.port)

    def _track(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while raw := await reader.read(65536):
            writer.write(raw)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
