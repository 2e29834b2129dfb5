"""The domain of a running VM is read by `exec` through a real API server, and its addresses are in the VM's next start.

A server of the test has the role of the kubelet, so that no launcher runs: see `kubelet.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from controllers.defaulting.controller import build
from controllers.shared.component import ControllerContext
from defaulter.running_guest import GUEST_ADDRESSES
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.meta import UNDEFAULTED
from poolhouse.api.kubevirt.launcher import SESSION, dump_command
from poolhouse.manifests import admission_policy, rbac
from poolhouse.runtime import pod_exec
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, Forbidden
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import VMIS, VMS, Resource
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, owned_by, vm_spec
from tests.cluster.kubelet import Kubelet, kubelet, launcher
from tests.cluster.pooling import Place, background, synced
from tests.cluster.test_kinds import applied
from tests.defaulter.builders import disk, nic, spec
from tests.kinds.documents import changed
from tests.waiting import eventually
from tests.webhook.fake_defaulter import FakeDefaulter

Json = dict[str, Any]
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
POD = "virt-launcher-web-abcde"
DOMAIN = """
<domain type='kvm' id='1'><name>{name}</name>
<os><type arch='x86_64' machine='pc-q35-9.2'>hvm</type></os>
<devices>
  <controller type='pci' index='0' model='pcie-root'/>
  <disk type='block' device='disk'><target dev='vda' bus='virtio'/><alias name='ua-root'/>
    <address type='pci' domain='0x0000' bus='0x08' slot='0x00' function='0x0'/></disk>
  <interface type='ethernet'><model type='virtio-non-transitional'/><alias name='ua-default'/>
    <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>
</devices></domain>
"""


@pytest_asyncio.fixture
async def node(place: Place, control_plane: StackPaths) -> AsyncIterator[Kubelet]:
    path = f"/api/v1/namespaces/{place.namespace}/serviceaccounts"
    with suppress(AlreadyExists):
        await place.api.request("POST", path, body={"metadata": {"name": "default"}})
    async with kubelet(place.api, control_plane, f"node-{place.namespace}") as found:
        yield found


async def runs(place: Place, node: Kubelet) -> Json:
    """A VM that the webhook has missed, and its guest."""
    content = spec(disk(), nic())
    await place.api.create(
        VMS, manifest(VMS, "web", vm_spec(content), place.namespace, annotations={UNDEFAULTED: "DefaulterUnavailable"})
    )
    vm = await place.api.patch(
        VMS,
        place.namespace,
        "web",
        {"status": {"created": True, "printableStatus": "Running"}},
        subresource="status",
    )
    owners = owned_by(VMS, "web", vm["metadata"]["uid"])
    vmi = await place.api.create(
        VMIS,
        manifest(
            VMIS, "web", content, place.namespace, ownerReferences=owners, finalizers=["test.dev/stay"], status={}
        ),
    )
    pod = await launcher(place.api, place.namespace, POD, vmi, node.node)
    status = {
        "phase": "Running",
        "volumeStatus": [{"name": "root"}],
        "nodeName": node.node,
        "runtimeUser": 107,
        "activePods": {pod["metadata"]["uid"]: node.node},
        "interfaces": [{"name": "default", "mac": "02:54:00:12:34:56", "infoSource": "domain"}],
    }
    return await place.api.patch(VMIS, place.namespace, "web", {"status": status})


@asynccontextmanager
async def defaulting(control_plane: StackPaths, *namespaces: str) -> AsyncIterator[FakeDefaulter]:
    defaulter: Any = FakeDefaulter()
    async with await Api.connect(control_plane.kubeconfig, user_agent="test-domains") as api:
        events = EventRecorder(api, "poolhouse.dev/controllers")
        part = build(ControllerContext(api=api, events=events), defaulter, read_domains=frozenset(namespaces))
        async with background(events.run(), *(each.run() for each in part.informers)) as start:
            await synced(part.informers)
            start(part.work())
            yield defaulter


def addresses(content: Json) -> list[str | None]:
    devices = content["domain"]["devices"]
    return [devices["disks"][0]["disk"].get("pciAddress"), devices["interfaces"][0].get("pciAddress")]


async def test_a_vm_has_the_addresses_of_its_domain_when_it_stops(
    place: Place, control_plane: StackPaths, node: Kubelet
) -> None:
    api, namespace = place.api, place.namespace
    node.output[POD] = DOMAIN.format(name=f"{namespace}_web").encode()
    vmi = await runs(place, node)
    async with defaulting(control_plane, namespace):

        async def note() -> str | None:
            return at(await api.get(VMIS, namespace, "web"), "metadata", "annotations", GUEST_ADDRESSES)

        assert json.loads(await eventually(note)) == {
            "vmi": vmi["metadata"]["uid"],
            "addresses": {"disk root": "0000:08:00.0", "interface default": "0000:01:00.0"},
        }
        assert node.commands == [
            (POD, "compute", ["virsh", "-c", SESSION, "dumpxml", f"{namespace}_web"]),
        ]
        assert addresses((await api.get(VMS, namespace, "web"))["spec"]["template"]["spec"]) == [None, None]

    # The next leader does not read it again.
    async with defaulting(control_plane, namespace) as defaulter:
        await api.delete(VMIS, namespace, "web")
        await api.patch(VMS, namespace, "web", {"status": {"printableStatus": "Stopping"}}, subresource="status")

        async def written() -> list[str | None] | None:
            found = addresses((await api.get(VMS, namespace, "web"))["spec"]["template"]["spec"])
            return found if all(found) else None

        assert await eventually(written) == ["0000:08:00.0", "0000:01:00.0"]
        assert len(node.commands) == 1
        assert addresses(defaulter.asked[0][0]["spec"]["template"]["spec"]) == ["0000:08:00.0", "0000:01:00.0"]
    await api.patch(VMIS, namespace, "web", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param(
            {"errors": b"error: no domain", "status": {"status": "Failure", "message": "exit code 1"}}, "exit"
        ),
        pytest.param({"status": None}, "the connection ended before the command"),
        pytest.param({"output": {POD: b"<domain><name>another</name></domain>"}}, "domain"),
        pytest.param({"output": {POD: b"x" * 2_000_000}}, "more than 1048576 bytes"),
    ],
)
async def test_a_domain_that_cannot_be_read_is_said(
    place: Place, control_plane: StackPaths, node: Kubelet, fault: Json, why: str
) -> None:
    for name, value in fault.items():
        setattr(node, name, value)
    await runs(place, node)
    async with defaulting(control_plane, "*"):

        async def said() -> str | None:
            events, _ = await place.api.list(EVENTS, place.namespace)
            found = [event["note"] for event in events if event["reason"] == "FailedDomainRead"]
            return found[0] if found else None

        assert why in await eventually(said)
    vmi = await place.api.get(VMIS, place.namespace, "web")
    assert at(vmi, "metadata", "annotations", GUEST_ADDRESSES) is None
    await place.api.patch(VMIS, place.namespace, "web", {"metadata": {"finalizers": None}})


async def test_the_controllers_run_one_command_in_launcher_pods_only(place: Place, node: Kubelet) -> None:
    user, (api, namespace) = rbac.service_account_user("controllers"), (place.api, place.namespace)
    policy, binding = admission_policy.domain_policies(user)
    await applied(api, changed(policy, namespace, "metadata", "name"))
    await applied(api, changed(changed(binding, namespace, "metadata", "name"), namespace, "spec", "policyName"))
    vmi = await runs(place, node)
    await launcher(api, namespace, "database", vmi, node.node)
    node.output = {POD: b"the domain", "database": b"a password"}
    allowed, controllers = dump_command(vmi), api.impersonating(user, ["system:masters"])

    async def run(command: list[str], pod: str = POD, container: str = "compute", who: Api = controllers) -> bytes:
        return await pod_exec.run(who, namespace, pod, container, command, max_bytes=1000, timeout_seconds=60)

    async def refused() -> bool:
        try:
            await run(["id"])
        except Forbidden:
            return True
        return False

    await eventually(refused)
    before = len(node.commands)
    for command in (
        ["id"],
        ["virsh", "-c", SESSION, "destroy", "web"],
        [*allowed, "--security-info"],
        ["virsh", "-c", "qemu+ext:///session?command=/bin/sh", "dumpxml", "web"],
    ):
        with pytest.raises(Forbidden, match="no command but virsh dumpxml"):
            await run(command)
    with pytest.raises(Forbidden, match="in launcher Pods only"):
        await run(allowed, pod="database")
    assert len(node.commands) == before
    assert await run(allowed) == b"the domain"
    assert await run(["id"], who=api) == b"the domain", "others are not limited"
    await api.patch(VMIS, namespace, "web", {"metadata": {"finalizers": None}})
