"""Admission end to end: a real API server, the webhook and a defaulter."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from controllers.defaulting.controller import DefaultingController, DefaultingWriter
from controllers.pool.pools import POOLS
from controllers.replicaset.observe import REPLICA_SETS
from controllers.warmpool.warm_pool import WARM_POOLS
from defaulter.contract import Defaulter, Problem, undefaulted_fields
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.meta import DEFAULTING, UNDEFAULTED
from poolhouse.manifests import webhooks
from poolhouse.runtime import access_review
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Invalid, NotFound
from poolhouse.runtime.events import EVENTS, EventRecorder
from poolhouse.runtime.resource import KUBEVIRTS, NAMESPACES, VMIS, VMS, Resource
from poolhouse.service import certificates
from poolhouse.service.server import serve
from poolhouse.service.settings import Address
from tests.builders import manifest, vm_spec, vmi_spec
from tests.cluster.heard import heard
from tests.cluster.pooling import background, clear, synced
from tests.cluster.test_kinds import api, applied, namespace
from tests.ports import free_port
from tests.resources import ROLE_BINDINGS, SERVICE_ACCOUNTS
from tests.tokens import token_of
from tests.waiting import PATIENCE_SECONDS, eventually, until, wait_until
from tests.webhook import fake_defaulter
from tests.webhook.fake_defaulter import FakeDefaulter
from webhook.main import Budgets, Settings, run
from webhook.reasons import FailOpenReason

Json = dict[str, Any]

KUBECTL = shutil.which("kubectl") or shutil.which("kubectl", path=str(Path(sys.executable).parent))
BUDGET_SECONDS = 25.0
"""for a defaulter, which shares two busy cores with everything that asks it"""
__all__ = ["api", "eventually", "namespace"]

CONFIGURATIONS = [
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{sort}webhookconfigurations",
        f"{sort.title()}WebhookConfiguration",
        False,
    )
    for sort in ("mutating", "validating")
]


def vm(namespace: str, name: str = "web", *disks: Json, **metadata: Any) -> Json:
    """With a disk for each volume, and one NIC."""
    names = [disk["name"] for disk in disks] or ["root"]
    spec = vmi_spec({name: {"containerDisk": {"image": "tiny"}} for name in names}, ["default"])
    if disks:
        spec["domain"]["devices"]["disks"] = list(disks)
    return manifest(VMS, name, vm_spec(spec, labels={"app": name}, running=True), namespace, **metadata)


def pool(namespace: str, name: str = "web", **spec: Any) -> Json:
    machine = vm(namespace)["spec"]
    return manifest(POOLS, name, {"replicas": 2, "template": {"spec": machine}, **spec}, namespace)


@dataclass
class Admission:
    """The webhook in this process, a defaulter behind it, and the API server's configurations that lead to it."""

    api: Api
    defaulter: FakeDefaulter
    port: int
    defaulter_port: int
    tls: Path
    serving: asyncio.Task[None] | None = None
    defaulting: asyncio.Task[None] | None = None

    async def webhook_serves(self) -> bool:
        """Raises what it ended of."""
        assert self.serving is not None
        if self.serving.done():
            self.serving.result()
        trust = ssl.create_default_context(cafile=str(self.tls / "ca.crt"))
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"https://127.0.0.1:{self.port}/healthz", ssl=trust) as answer:
                    return answer.ok
            except aiohttp.ClientError:
                return False

    async def webhook_ends(self) -> None:
        assert self.serving is not None
        self.serving.cancel()
        await asyncio.gather(self.serving, return_exceptions=True)

    async def defaulter_starts(self) -> None:
        started = asyncio.Event()
        self.defaulting = asyncio.create_task(
            serve(
                fake_defaulter.app(self.defaulter),
                "127.0.0.1",
                self.defaulter_port,
                drain_seconds=1,
                started=lambda port: started.set(),
            )
        )
        await started.wait()

    async def defaulter_ends(self) -> None:
        assert self.defaulting is not None
        self.defaulting.cancel()
        await asyncio.gather(self.defaulting, return_exceptions=True)
        self.defaulting = None

    async def dry_run(self, document: Json, token: str, **query: str) -> tuple[int, Json]:
        trust = ssl.create_default_context(cafile=str(self.tls / "ca.crt"))
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{self.port}/apis/vms/dryrun"
            headers = {"Authorization": f"Bearer {token}"}
            async with session.post(url, json=document, headers=headers, params=query, ssl=trust) as answer:
                return answer.status, await answer.json()


def certified(directory: Path) -> Path:
    now = datetime.now(UTC)
    authority = certificates.new_ca("test", now, timedelta(days=1))
    server = certificates.new_server_certificate(authority, "webhook", ["127.0.0.1"], now, timedelta(days=1))
    for name, content in (("ca.crt", authority.certificate), ("tls.crt", server.certificate), ("tls.key", server.key)):
        (directory / name).write_bytes(content)
    return directory


@contextlib.asynccontextmanager
async def configured(api: Api, namespace: str, tls: Path, port: int) -> AsyncIterator[None]:
    """The API server asks the webhook; afterwards it has forgotten it, or nobody could create a pool any more."""
    documents = webhooks.configurations(url=f"https://127.0.0.1:{port}", ca_bundle=(tls / "ca.crt").read_bytes())
    for document in documents:
        for each in document["webhooks"]:
            each["timeoutSeconds"] = 30

    async def asked() -> bool:
        probe = await api.create(VMS, vm(namespace, "probe"), dry_run=True)
        return probe["spec"] != vm(namespace, "probe")["spec"]

    async def forgotten() -> bool:
        probe = await api.create(VMS, vm(namespace, "probe"), dry_run=True)
        try:
            await api.create(POOLS, pool(namespace, "probe"), dry_run=True)
        except ApiError:
            return False
        return probe["spec"] == vm(namespace, "probe")["spec"]

    try:
        for document in documents:
            await applied(api, document)
        await heard(api)
        await eventually(asked)
        yield
    finally:
        for resource in CONFIGURATIONS:
            for document in documents:
                if document["kind"] == resource.kind:
                    with contextlib.suppress(NotFound):
                        await api.delete(resource, None, document["metadata"]["name"])
        await heard(api)
    await eventually(forgotten)


@contextlib.asynccontextmanager
async def admitting(api: Api, namespace: str, tls: Path, defaulter_port: int = 0) -> AsyncIterator[Admission]:
    """With a stand-in for the defaulter, unless one listens on `defaulter_port`."""
    found = Admission(api, FakeDefaulter(), free_port(), defaulter_port or free_port(), certified(tls))
    settings = Settings(
        listen=Address("127.0.0.1", found.port),
        tls=tls,
        defaulter_url=f"http://127.0.0.1:{found.defaulter_port}",
        identity_seed="seed",
    )
    budgets = Budgets(defaulter_seconds=BUDGET_SECONDS, checks_seconds=BUDGET_SECONDS)
    if not defaulter_port:
        await found.defaulter_starts()
    found.serving = asyncio.create_task(run(settings, budgets))
    try:
        await eventually(found.webhook_serves)
        async with configured(api, namespace, tls, found.port):
            found.defaulter.asked.clear()
            yield found
    finally:
        if found.defaulting is not None:
            await found.defaulter_ends()
        await found.webhook_ends()


@pytest_asyncio.fixture
async def admission(
    api: Api, namespace: str, control_plane: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Admission]:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    async with admitting(api, namespace, tmp_path) as found:
        yield found


# Virtual machines


async def test_a_vm_that_is_older_than_poolhouse_keeps_what_its_guest_has(admission: Admission, namespace: str) -> None:
    """A VM that lists no devices runs when Poolhouse is installed, and is stopped later."""
    api, opted_out = admission.api, {"poolhouse.dev/defaulting": "disabled"}
    await api.patch(NAMESPACES, None, namespace, {"metadata": {"labels": opted_out}})
    volumes = [{"name": "root", "containerDisk": {"image": "tiny"}}]
    older = vm(namespace)
    older["spec"]["template"]["spec"] = {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}, "volumes": volumes}

    async def is_stored_as_written() -> bool:
        probe = await api.create(VMS, older, dry_run=True)
        return "disks" not in domain_of(probe)["devices"]

    await eventually(is_stored_as_written)
    stored = await api.create(VMS, older)
    guest = json.loads(json.dumps(older["spec"]["template"]["spec"]))
    guest["domain"]["devices"] = {
        "disks": [{"name": "root", "disk": {"bus": "sata"}}],
        "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
    }
    guest["networks"] = [{"name": "default", "pod": {}}]
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": guest}
    instance["metadata"] = {"namespace": namespace, "name": "web"}
    interfaces = [{"name": "default", "mac": "02:54:00:12:34:56", "infoSource": "domain"}]
    status = {"phase": "Running", "machine": {"type": "pc-q35-7.2"}, "interfaces": interfaces}
    await api.create(VMIS, {**instance, "status": status})
    await api.patch(VMS, namespace, "web", {"status": {"created": True, "ready": True}}, subresource="status")
    await api.patch(NAMESPACES, None, namespace, {"metadata": {"labels": {"poolhouse.dev/defaulting": None}}})

    async def is_selected() -> bool:
        probe = await api.create(VMS, vm(namespace, "probe"), dry_run=True)
        return probe["spec"] != vm(namespace, "probe")["spec"]

    await eventually(is_selected)
    stop = {"metadata": {"uid": stored["metadata"]["uid"]}, "spec": {"running": False}}
    stopped = domain_of(await api.patch(VMS, namespace, "web", stop))
    assert stopped["machine"] == {"type": "pc-q35-7.2"}
    assert stopped["devices"]["disks"] == [{"name": "root", "disk": {"bus": "sata"}}]
    assert stopped["devices"]["interfaces"] == [
        {"name": "default", "masquerade": {}, "model": "virtio", "macAddress": "02:54:00:12:34:56"}
    ]


@pytest.mark.sentence("4.1")
async def test_a_vm_is_stored_with_defaults(admission: Admission, namespace: str) -> None:
    made = await admission.api.create(VMS, vm(namespace))
    assert undefaulted_fields(made) == []
    assert made == await admission.api.get(VMS, namespace, "web")


async def test_a_changed_kubevirt_object_is_sent_with_the_next_vm(admission: Admission, namespace: str) -> None:
    async def network() -> Any:
        await admission.api.create(VMS, vm(namespace, "asks"), dry_run=True)
        return at(admission.defaulter.kubevirt, "spec", "configuration", "network", "defaultNetworkInterface")

    async def binding(name: str | None) -> None:
        async def sent() -> bool:
            return await network() == name

        await eventually(sent)

    configuration: Json = {"network": {"defaultNetworkInterface": "masquerade"}, "migrations": {}}
    document = manifest(KUBEVIRTS, "kubevirt", {"configuration": configuration}, namespace)
    await admission.api.create(KUBEVIRTS, document)
    await binding("masquerade")
    assert "migrations" not in at(admission.defaulter.kubevirt, "spec", "configuration")
    change = {"spec": {"configuration": {"network": {"defaultNetworkInterface": "bridge"}}}}
    await admission.api.patch(KUBEVIRTS, namespace, "kubevirt", change)
    await binding("bridge")
    await admission.api.delete(KUBEVIRTS, namespace, "kubevirt")
    await binding(None)


@contextlib.asynccontextmanager
async def meddling(admission: Admission, namespace: str, operation: Json) -> AsyncIterator[None]:
    """Another webhook, which sorts after ours and changes the disks of VMs of the namespace."""

    async def meddle(http: Request) -> Response:
        uid = (await http.json())["request"]["uid"]
        change = {**operation, "path": f"/spec/template/spec/domain/devices/disks/{operation['path']}"}
        patch = base64.b64encode(json.dumps([change]).encode()).decode()
        response = {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return JSONResponse({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    port, started = free_port(), asyncio.Event()
    app = Starlette(routes=[Route("/", meddle, methods=["POST"])])
    serving = asyncio.create_task(serve(app, "127.0.0.1", port, admission.tls, started=lambda port: started.set()))
    await started.wait()
    authority = (admission.tls / "ca.crt").read_bytes()
    (configuration,) = (
        document
        for document in webhooks.configurations(url=f"https://127.0.0.1:{port}", ca_bundle=authority)
        if document["webhooks"][0]["name"] == "defaulting.poolhouse.dev"
    )
    mine = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"clientConfig": {**configuration["webhooks"][0]["clientConfig"], "url": f"https://127.0.0.1:{port}/"}}
    rule |= {"name": "meddle.example.com", "namespaceSelector": mine, "reinvocationPolicy": "Never"}
    configuration["metadata"]["name"] = f"zzz-{namespace}"
    configuration["webhooks"] = [{**configuration["webhooks"][0], **rule}]
    await admission.api.create(CONFIGURATIONS[0], configuration)
    try:
        yield
    finally:
        await admission.api.delete(CONFIGURATIONS[0], None, f"zzz-{namespace}")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.sentence("4.31")
async def test_a_webhook_that_runs_later_is_detected(admission: Admission, namespace: str) -> None:
    # The API server asks again whoever wants it when a later webhook changed something. Somebody who turned that off,
    # or a webhook that changes things each time, leaves a disk without an address.
    configuration = await admission.api.get(CONFIGURATIONS[0], None, webhooks.DEFAULTING_CONFIGURATION)
    configuration["webhooks"][0]["reinvocationPolicy"] = "Never"
    await admission.api.replace(CONFIGURATIONS[0], configuration)
    injected = {"name": "injected", "disk": {"bus": "virtio"}}
    async with meddling(admission, namespace, {"op": "add", "path": "0", "value": injected}):

        async def noticed() -> bool:
            made = await admission.api.create(VMS, vm(namespace, "late"), dry_run=True)
            first = at(made, "spec", "template", "spec", "domain", "devices", "disks", 0)
            return first == injected and await counted(admission, "HardwareUndefaulted")

        await eventually(noticed)


@pytest.mark.sentence("4.29", "4.30")
async def test_a_disk_that_a_later_webhook_adds_gets_its_address(admission: Admission, namespace: str) -> None:
    injected = {"name": "injected", "disk": {"bus": "virtio"}}
    async with meddling(admission, namespace, {"op": "add", "path": "0", "value": injected}):

        async def complete() -> bool:
            made = await admission.api.create(VMS, vm(namespace, "late"), dry_run=True)
            first = at(made, "spec", "template", "spec", "domain", "devices", "disks", 0)
            return first["name"] == "injected" and bool(first["disk"].get("pciAddress"))

        await eventually(complete)


@pytest.mark.sentence("4.31")
async def test_a_webhook_that_changes_an_address_later_is_detected(admission: Admission, namespace: str) -> None:
    change = {"op": "replace", "path": "0/disk/pciAddress", "value": "0000:1f:00.0"}
    # Each attempt has another name. If a request lasts longer than the webhook remembers its answer, the webhook does
    # not report the change, for this request and for the next ones of the same VM.
    names = (f"late-{number}" for number in itertools.count())
    async with meddling(admission, namespace, change):

        async def seen() -> tuple[str, bool]:
            made = await admission.api.create(VMS, vm(namespace, next(names)), dry_run=True)
            disk = at(made, "spec", "template", "spec", "domain", "devices", "disks", 0, "disk")
            return disk.get("pciAddress", ""), await counted(admission, "HardwareChanged")

        await until(seen, ("0000:1f:00.0", True))


async def test_only_a_vm_that_is_incomplete_after_all_webhooks_is_verified(
    admission: Admission, namespace: str
) -> None:
    before = await reviewed(admission, "validate")
    await admission.api.create(VMS, vm(namespace, "complete"))
    assert await reviewed(admission, "validate") == before
    configuration = await admission.api.get(CONFIGURATIONS[0], None, webhooks.DEFAULTING_CONFIGURATION)
    configuration["webhooks"][0]["reinvocationPolicy"] = "Never"
    await admission.api.replace(CONFIGURATIONS[0], configuration)
    async with meddling(admission, namespace, {"op": "remove", "path": "0/disk/pciAddress"}):

        async def asked() -> bool:
            await admission.api.create(VMS, vm(namespace, "incomplete"), dry_run=True)
            return await reviewed(admission, "validate") > before

        await eventually(asked)


async def reviewed(admission: Admission, entry: str) -> int:
    """About how many VMs the API server has asked the webhook."""
    lines = await metrics(admission, f'admission_duration_seconds_count{{entry="{entry}",kind="VirtualMachine"')
    return round(sum(float(line.split()[-1]) for line in lines))


async def metrics(admission: Admission, name: str) -> list[str]:
    trust = ssl.create_default_context(cafile=str(admission.tls / "ca.crt"))
    url = f"https://127.0.0.1:{admission.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=trust) as answer:
        return [line for line in (await answer.text()).splitlines() if name in line]


async def counted(admission: Admission, reason: str) -> bool:
    lines = await metrics(admission, f'hardware_changed_later_total{{reason="{reason}"}}')
    return any(not line.endswith(" 0.0") for line in lines)


@pytest.mark.sentence("4.23")
async def test_a_dry_run_returns_the_defaulted_vm_and_stores_nothing(admission: Admission, namespace: str) -> None:
    shown = await admission.api.create(VMS, vm(namespace), dry_run=True)
    with pytest.raises(NotFound):
        await admission.api.get(VMS, namespace, "web")
    assert (await admission.api.create(VMS, vm(namespace)))["spec"] == shown["spec"]


async def test_status_finalizers_and_deletion_do_not_call_the_defaulter(admission: Admission, namespace: str) -> None:
    api = admission.api
    await api.create(VMS, vm(namespace, finalizers=["test.dev/stay"]))
    admission.defaulter.asked.clear()
    await api.patch(VMS, namespace, "web", {"status": {"created": True}}, subresource="status")
    await api.patch(VMS, namespace, "web", {"metadata": {"labels": {"a": "b"}}})
    await api.delete(VMS, namespace, "web")
    await api.patch(VMS, namespace, "web", {"metadata": {"finalizers": None}})
    assert admission.defaulter.asked == []
    with pytest.raises(NotFound):
        await api.get(VMS, namespace, "web")


async def test_opted_out_vms_and_namespaces_are_not_changed(admission: Admission, namespace: str) -> None:
    api = admission.api
    labelled = await api.create(VMS, vm(namespace, labels={DEFAULTING: "disabled"}))
    assert labelled["spec"] == vm(namespace)["spec"]
    await api.patch(NAMESPACES, None, namespace, {"metadata": {"labels": {DEFAULTING: "disabled"}}})

    async def left_alone() -> bool:
        made = await api.create(VMS, vm(namespace, "other"), dry_run=True)
        return bool(made["spec"] == vm(namespace, "other")["spec"])

    await eventually(left_alone)


# Fail open, complete later


@contextlib.asynccontextmanager
async def defaulting_controller(admission: Admission) -> AsyncIterator[DefaultingController]:
    defaulter = Defaulter(f"http://127.0.0.1:{admission.defaulter_port}", BUDGET_SECONDS)
    events = EventRecorder(admission.api, "poolhouse.dev/test")
    controller = DefaultingController(
        admission.api, DefaultingWriter(admission.api, defaulter, events, seed="seed"), now=monotonic
    )
    try:
        async with background(controller.run(), events.run()):
            await synced(controller.informers)
            yield controller
    finally:
        await defaulter.close()


async def test_without_a_defaulter_a_vm_is_stored_with_the_annotation(admission: Admission, namespace: str) -> None:
    await admission.defaulter_ends()
    warnings: list[str] = []
    made = await admission.api.request("POST", VMS.path(namespace), body=vm(namespace), warnings=warnings)
    assert made["metadata"]["annotations"] == {UNDEFAULTED: FailOpenReason.DEFAULTER_UNAVAILABLE}
    assert made["spec"] == vm(namespace)["spec"]
    assert len(warnings) == 1
    assert len(warnings[0]) <= 256


async def test_a_duplicate_mac_address_is_reported(admission: Admission, namespace: str) -> None:
    async with defaulting_controller(admission):
        for name in ("web", "db"):
            made = vm(namespace, name)
            made["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = "02:00:00:00:00:01"
            await admission.api.create(VMS, made)

        async def told() -> bool:
            events, _ = await admission.api.list(EVENTS, namespace)
            found = [
                (e["regarding"]["name"], "that of VM web:" in e["note"])
                for e in events
                if e["reason"] == "DuplicateMAC"
            ]
            return found == [("db", True)]

        await eventually(told)


@pytest.mark.sentence("4.34")
async def test_a_vm_gets_defaults_once_the_defaulter_is_back(admission: Admission, namespace: str) -> None:
    await admission.defaulter_ends()
    await admission.api.create(VMS, vm(namespace))
    async with defaulting_controller(admission):
        await asyncio.sleep(0.3)
        assert undefaulted_fields(await admission.api.get(VMS, namespace, "web"))
        await admission.defaulter_starts()

        async def complete() -> bool:
            found = await admission.api.get(VMS, namespace, "web")
            return not undefaulted_fields(found) and UNDEFAULTED not in found["metadata"].get("annotations", {})

        await eventually(complete)

        async def said() -> bool:
            events, _ = await admission.api.list(EVENTS, namespace)
            return [event["reason"] for event in events] == ["HardwareDecided"]

        await eventually(said)
        at_rest = (await admission.api.get(VMS, namespace, "web"))["metadata"]["resourceVersion"]
        await asyncio.sleep(0.5)
        assert (await admission.api.get(VMS, namespace, "web"))["metadata"]["resourceVersion"] == at_rest


async def test_a_running_vm_gets_defaults_when_it_stops(admission: Admission, namespace: str) -> None:
    api = admission.api
    await admission.defaulter_ends()
    await api.create(VMS, vm(namespace))
    await api.patch(VMS, namespace, "web", {"status": {"created": True}}, subresource="status")
    template = vm(namespace)["spec"]["template"]
    instance = manifest(VMIS, "web", template["spec"], namespace, finalizers=["test.dev/stay"])
    await api.create(VMIS, instance)
    await admission.defaulter_starts()
    async with defaulting_controller(admission):
        await asyncio.sleep(0.5)
        assert undefaulted_fields(await api.get(VMS, namespace, "web"))
        # It stops: its instance is going, and KubeVirt says so in the VM's status.
        await api.delete(VMIS, namespace, "web")
        await api.patch(VMS, namespace, "web", {"status": {"printableStatus": "Stopping"}}, subresource="status")

        async def complete() -> bool:
            return not undefaulted_fields(await api.get(VMS, namespace, "web"))

        await eventually(complete)
    await api.patch(VMIS, namespace, "web", {"metadata": {"finalizers": None}})


async def test_a_vm_that_cannot_be_defaulted_is_not_written_repeatedly(admission: Admission, namespace: str) -> None:
    await admission.defaulter_ends()
    await admission.api.create(VMS, vm(namespace))
    admission.defaulter.refuses = lambda document: [Problem(path="spec.a", message="bad")]
    await admission.defaulter_starts()
    async with defaulting_controller(admission):

        async def said() -> bool:
            events, _ = await admission.api.list(EVENTS, namespace)
            return [event["reason"] for event in events] == ["HardwareUndecided"]

        await eventually(said)
        await asyncio.sleep(0.5)
        asked = [
            document for document, *_ in admission.defaulter.asked if at(document, "metadata", "namespace") == namespace
        ]
        assert len(asked) == 1


@pytest_asyncio.fixture
async def elders(api: Api, namespace: str) -> None:
    """VMs that were there before the webhook, by a second at least: a creation time knows no less."""
    made = [await api.create(VMS, vm(namespace, name)) for name in ("elder", "asking")]

    async def passed() -> bool:
        now = await api.create(VMS, vm(namespace, "now"), dry_run=True)
        return bool(now["metadata"]["creationTimestamp"] > made[-1]["metadata"]["creationTimestamp"])

    await eventually(passed)


async def test_older_and_exempt_vms_are_not_changed(
    api: Api, namespace: str, elders: None, admission: Admission
) -> None:
    exempt = f"{namespace}-exempt"
    await api.create(NAMESPACES, {"metadata": {"name": exempt}})
    values = "/webhooks/0/namespaceSelector/matchExpressions/0/values/-"
    path = [{"op": "add", "path": values, "value": exempt}]
    await api.patch(CONFIGURATIONS[0], None, webhooks.DEFAULTING_CONFIGURATION, path, kind="json")
    await admission.webhook_ends()
    for where, name in ((exempt, "exempt"), (namespace, "young")):
        await api.create(VMS, vm(where, name))
    await api.patch(VMS, namespace, "asking", {"metadata": {"annotations": {UNDEFAULTED: "Asked"}}})

    async with defaulting_controller(admission) as controller:
        for name in ("young", "asking"):

            async def complete(name: str = name) -> bool:
                return not undefaulted_fields(await api.get(VMS, namespace, name))

            await eventually(complete)
        await eventually(lambda: not len(controller.controller.queue))
        for where, name in ((namespace, "elder"), (exempt, "exempt")):
            found = await api.get(VMS, where, name)
            assert (found["spec"], found["metadata"].get("annotations")) == (vm(where, name)["spec"], None)
    await clear(api, exempt)


async def test_an_older_vm_that_restarts_keeps_the_mac_address_of_its_guest(
    api: Api, namespace: str, elders: None, admission: Admission
) -> None:
    """`virtctl restart` and a shutdown in the guest change no spec, so that the webhook sees no stop."""
    guest = json.loads(json.dumps(vm(namespace)["spec"]["template"]["spec"]))
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": guest}
    (listed,) = guest["domain"]["devices"]["interfaces"]
    interfaces = [{"name": listed["name"], "mac": "02:54:00:12:34:56", "infoSource": "domain"}]
    instance["metadata"] = {
        "namespace": namespace,
        "name": "elder",
        "labels": {"poolhouse.dev/defaulting": "disabled"},
    }
    await api.create(VMIS, {**instance, "status": {"phase": "Running", "interfaces": interfaces}})

    async def status(**values: Any) -> None:
        await api.patch(VMS, namespace, "elder", {"status": values}, subresource="status")

    async def macs() -> list[Any]:
        found = domain_of(await api.get(VMS, namespace, "elder"))["devices"]["interfaces"]
        return [each.get("macAddress") for each in found]

    async with defaulting_controller(admission) as controller:
        await status(created=True, ready=True, printableStatus="Running")
        await eventually(lambda: not len(controller.controller.queue))
        assert await macs() == [None]
        await status(ready=False, printableStatus="Stopping")
        await until(macs, ["02:54:00:12:34:56"])
        kept = await api.get(VMS, namespace, "elder")
        await status(printableStatus="Stopped")
        await eventually(lambda: not len(controller.controller.queue))
        assert (await api.get(VMS, namespace, "elder"))["spec"] == kept["spec"]


# Kinds of ours


async def test_a_manifest_that_loses_replicas_keeps_the_stored_number(admission: Admission, namespace: str) -> None:
    """A new pool has to say it; later, an autoscaler may own the field."""
    unnumbered = pool(namespace)
    numbered = unnumbered["spec"].pop("replicas")
    name = unnumbered["metadata"]["name"]
    with pytest.raises(ApiError, match="Beside an autoscaler, give the number to begin with"):
        await admission.api.create(POOLS, unnumbered)
    applied = {"kind": "apply", "field_manager": "gitops", "force": True}
    await admission.api.patch(POOLS, namespace, name, pool(namespace), **applied)

    async def replicas() -> Any:
        return (await admission.api.get(POOLS, namespace, name))["spec"]["replicas"]

    await admission.api.patch(POOLS, namespace, name, unnumbered, **applied)
    assert await replicas() == numbered, "nobody has scaled it before"
    await admission.api.patch(POOLS, namespace, name, {"spec": {"replicas": 5}})
    await admission.api.patch(POOLS, namespace, name, unnumbered, **applied)
    await admission.api.patch(POOLS, namespace, name, {"spec": {"replicas": None}})
    assert await replicas() == 5


@pytest.mark.parametrize("resource", [REPLICA_SETS, WARM_POOLS], ids=lambda resource: resource.kind)
async def test_a_default_number_is_for_new_objects_only(
    admission: Admission, namespace: str, resource: Resource
) -> None:
    inner = {"domain": {"memory": {"guest": "128Mi"}, "devices": {}}}
    spec: Json = {"template": {"spec": {"template": {"spec": inner}}}}
    if resource is REPLICA_SETS:
        labels = {"app": "web"}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": inner}}
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    unnumbered = {**identity, "metadata": {"name": "web", "namespace": namespace}, "spec": spec}
    numbered = {**unnumbered, "spec": {**spec, "replicas": 4}}
    applied = {"kind": "apply", "field_manager": "gitops", "force": True}

    async def replicas_after(document: Json, **options: Any) -> Any:
        return (await admission.api.patch(resource, namespace, "web", document, **options))["spec"]["replicas"]

    assert await replicas_after(unnumbered, **applied) == 1
    assert await replicas_after(numbered, **applied) == 4
    assert await replicas_after(unnumbered, **applied) == 4
    assert await replicas_after({"spec": {"replicas": None}}) == 4
    await admission.api.delete(resource, namespace, "web")


@pytest.mark.parametrize("operation", ["create", "update"])
async def test_one_denial_lists_all_problems_of_a_pool(admission: Admission, namespace: str, operation: str) -> None:
    bad = pool(namespace, replicas="two", maxUnavailable="lots", autohealing={"startupFailureThreshold": 0}, paused=1)
    send = admission.api.create
    if operation == "update":
        send = admission.api.replace
        bad = {**(await admission.api.create(POOLS, pool(namespace))), "spec": bad["spec"]}
    with pytest.raises(Invalid) as refusal:
        await send(POOLS, bad)
    assert {cause["field"] for cause in refusal.value.causes} == {
        "spec.replicas",
        "spec.maxUnavailable",
        "spec.autohealing.startupFailureThreshold",
        "spec.paused",
    }


async def test_without_a_webhook_a_pool_cannot_be_created_but_deleted(admission: Admission, namespace: str) -> None:
    api = admission.api
    stored = await api.create(POOLS, pool(namespace))
    await api.patch(POOLS, namespace, "web", {"metadata": {"finalizers": ["test.dev/stay"]}})
    await admission.webhook_ends()
    with pytest.raises(ApiError):
        await api.create(POOLS, pool(namespace, "other"))
    await api.delete(POOLS, namespace, "web", uid=stored["metadata"]["uid"])
    await api.patch(POOLS, namespace, "web", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await api.get(POOLS, namespace, "web")


# Dry runs


ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


async def token(api: Api, namespace: str, *plurals: str) -> str:
    """Of a new ServiceAccount that may create and patch these, in this namespace, and is known to."""
    name = "jane" if plurals else "nobody"
    await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": name, "namespace": namespace}})
    if plurals:
        groups, verbs = ["kubevirt.io", "poolhouse.dev"], ["create", "patch"]
        rules = [{"apiGroups": groups, "resources": list(plurals), "verbs": verbs}]
        await api.request(
            "POST",
            f"/apis/{ROLE_BINDINGS.group}/v1/namespaces/{namespace}/roles",
            body={"metadata": {"name": name, "namespace": namespace}, "rules": rules},
        )
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        role = {"apiGroup": ROLE_BINDINGS.group, "kind": "Role", "name": name}
        body = {"metadata": {"name": name, "namespace": namespace}, "roleRef": role, "subjects": [subject]}
        await api.create(ROLE_BINDINGS, body)
    found = await token_of(api, namespace, name)

    async def granted(plural: str) -> bool:
        caller = api.with_token(lambda: found)
        try:
            return await access_review.caller_may(
                caller, "create", Resource("kubevirt.io", "v1", plural, ""), namespace
            )
        except ApiError as error:
            if error.status != 401:  # the account itself is not known yet
                raise
            return False

    for plural in plurals:
        await eventually(partial(granted, plural))
    return found


@pytest.mark.sentence("4.23")
async def test_a_dry_run_returns_what_a_creation_stores(admission: Admission, namespace: str) -> None:
    jane = await token(admission.api, namespace, "virtualmachines")
    status, told = await admission.dry_run(vm(namespace), jane)
    assert (status, told["allowed"], told["problems"]) == (200, True, [])
    with pytest.raises(NotFound):
        await admission.api.get(VMS, namespace, "web")
    made = await admission.api.create(VMS, vm(namespace))
    assert told["object"]["spec"] == made["spec"]


async def test_a_dry_run_needs_the_right_to_create(admission: Admission, namespace: str) -> None:
    nobody = await token(admission.api, namespace)
    assert (await admission.dry_run(vm(namespace), nobody))[0] == 403
    assert (await admission.dry_run(vm(namespace), "made-up"))[0] == 401


async def test_an_existing_name_is_a_problem_of_the_name(
    admission: Admission, namespace: str, control_plane: Any
) -> None:
    await admission.api.create(VMS, vm(namespace))
    jane = await token(admission.api, namespace, "virtualmachines")

    async def told() -> bool:
        status, answer = await admission.dry_run(vm(namespace), jane)
        return status == 200 and [problem["path"] for problem in answer["problems"]] == ["metadata.name"]

    await eventually(told)


# With the real libvirt


@pytest.fixture(scope="module")
def real_defaulter() -> Iterator[int]:
    """The port of a defaulter with libvirt."""
    port = free_port()
    settings = {"POOLHOUSE_LISTEN": f"127.0.0.1:{port}", "POOLHOUSE_VIDEO": "fill"}
    process = subprocess.Popen([sys.executable, "-m", "defaulter.main"], env={**os.environ, **settings})

    def ready() -> bool:
        assert process.poll() is None, "the defaulter ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_until(ready)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest_asyncio.fixture
async def libvirt(
    api: Api,
    namespace: str,
    control_plane: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    real_defaulter: int,
) -> AsyncIterator[Admission]:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    async with admitting(api, namespace, tmp_path, real_defaulter) as found:
        yield found


@pytest.mark.libvirt
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="needs QEMU")
@pytest.mark.sentence("4.1", "4.5", "4.20")
async def test_a_stored_vm_has_the_defaults_of_libvirt(libvirt: Admission, namespace: str) -> None:
    api = libvirt.api
    disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "sata"}}]
    made = await api.create(VMS, vm(namespace, "web", *disks))
    domain = made["spec"]["template"]["spec"]["domain"]
    assert domain["machine"]["type"].startswith("pc-q35-")
    assert domain["devices"]["disks"][0]["disk"]["pciAddress"] == "0000:07:00.0"
    assert undefaulted_fields(made) == []
    # A bare manifest again, with one disk more: what was decided stays, and only the new disk is decided.
    more = vm(namespace, "web", *disks, {"name": "more", "disk": {"bus": "virtio"}})
    more["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    changed = await api.replace(VMS, more)
    after = changed["spec"]["template"]["spec"]["domain"]
    assert after["devices"]["disks"][:2] == domain["devices"]["disks"]
    assert after["devices"]["interfaces"] == domain["devices"]["interfaces"]
    assert after["firmware"] == domain["firmware"]
    assert after["devices"]["disks"][2]["disk"]["pciAddress"]


def open_vm(namespace: str) -> Json:
    """A VM whose memory comes from its request."""
    found = vm(namespace)
    domain = found["spec"]["template"]["spec"]["domain"]
    domain["memory"] = {}
    domain["resources"] = {"requests": {"memory": "128Mi"}}
    return found


def domain_of(document: Json) -> Json:
    found: Json = document["spec"]["template"]["spec"]["domain"]
    return found


CONTRADICTION: Json = {
    "resources": {"requests": {"memory": "256Mi"}},
    "devices": {"autoattachGraphicsDevice": False},
}


@pytest.mark.libvirt
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="needs QEMU")
@pytest.mark.parametrize("way", ["edit", "apply", "server-side apply", "replace"])
async def test_defaults_give_way_to_the_author(
    libvirt: Admission, namespace: str, control_plane: Any, tmp_path: Path, way: str
) -> None:
    """Whichever way the author edits the VM, defaults follow, and values that the author wrote stay."""
    api, manifest = libvirt.api, open_vm(namespace)

    async def kubectl_apply(document: Json) -> Json:
        (tmp_path / "vm.json").write_text(json.dumps(document))
        command = (KUBECTL, f"--kubeconfig={control_plane.kubeconfig}", "apply", "-f", str(tmp_path / "vm.json"))
        process = await asyncio.create_subprocess_exec(*map(str, command))
        assert await process.wait() == 0
        return await api.get(VMS, namespace, "web")

    async def server_side_apply(document: Json) -> Json:
        return await api.patch(VMS, namespace, "web", document, kind="apply", field_manager="tests")

    if way == "apply" and KUBECTL is None:
        pytest.skip("needs kubectl")
    create = {"apply": kubectl_apply, "server-side apply": server_side_apply}.get(way)
    made = await (create(manifest) if create else api.create(VMS, manifest))
    assert domain_of(made)["memory"]["guest"] == "128Mi"
    assert domain_of(made)["devices"]["video"] == {"type": "vga"}

    edited = json.loads(json.dumps(manifest))
    domain_of(edited)["resources"] = CONTRADICTION["resources"]
    domain_of(edited)["devices"] |= {**CONTRADICTION["devices"], "disks": [{"name": "root", "disk": {"bus": "sata"}}]}
    if create:
        changed = await create(edited)
    elif way == "replace":
        edited["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
        changed = await api.replace(VMS, edited)
    else:
        disks = [{"name": "root", "disk": {**domain_of(made)["devices"]["disks"][0]["disk"], "bus": "sata"}}]
        change = {**CONTRADICTION, "devices": {**CONTRADICTION["devices"], "disks": disks}}
        patch = {"spec": {"template": {"spec": {"domain": change}}}}
        changed = await api.patch(VMS, namespace, "web", patch)
    after = domain_of(changed)
    assert after["memory"]["guest"] == "256Mi"
    assert "video" not in after["devices"]
    assert after["devices"]["disks"] == [{"name": "root", "disk": {"bus": "sata"}}]
    assert after["devices"]["interfaces"] == domain_of(made)["devices"]["interfaces"]
    assert after["firmware"] == domain_of(made)["firmware"]
    assert after["machine"] == domain_of(made)["machine"]

    # The author sets the default, and no later edit changes it.
    own = {"memory": {"guest": "300Mi"}, "resources": {"requests": {"memory": "400Mi"}}}
    if create:
        domain_of(edited).update(own)
        changed = await create(edited)
        domain_of(edited)["resources"] = {"requests": {"memory": "500Mi"}}
        changed = await create(edited)
    else:
        for memory in ("400Mi", "500Mi"):
            own["resources"] = {"requests": {"memory": memory}}
            changed = await api.patch(VMS, namespace, "web", {"spec": {"template": {"spec": {"domain": own}}}})
    assert domain_of(changed)["memory"]["guest"] == "300Mi"
    assert domain_of(changed)["resources"]["requests"]["memory"] == "500Mi"
