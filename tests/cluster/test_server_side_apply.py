"""Server-side apply of one VM by several field managers: a real API server, the webhook, the real defaulter."""

import copy
import shutil
from typing import Any

import pytest

from apimachinery.unstructured import Json
from runtime.errors import Conflict
from tests.cluster.test_admission import MACHINES, Admission, admission, api, domain_of, libvirt, namespace

__all__ = ["admission", "api", "libvirt", "namespace"]

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="needs QEMU"),
]

LISTS: dict[str, list[Json]] = {
    "domain.devices.disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
    "domain.devices.interfaces": [{"name": "default", "masquerade": {}}, {"name": "bridge", "bridge": {}}],
    "domain.devices.gpus": [{"name": "gpu", "deviceName": "nvidia.com/T4"}],
    "domain.devices.hostDevices": [{"name": "card", "deviceName": "example.com/card"}],
    "domain.devices.inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
    "domain.devices.filesystems": [{"name": "share", "virtiofs": {}}],
    "networks": [{"name": "default", "pod": {}}, {"name": "bridge", "multus": {"networkName": "net"}}],
    "volumes": [
        {"name": "root", "containerDisk": {"image": "tiny"}},
        {"name": "data", "emptyDisk": {"capacity": "1Gi"}},
        {"name": "share", "configMap": {"name": "share"}},
    ],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "accessCredentials": [
        {
            "sshPublicKey": {
                "source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {"noCloud": {}},
            }
        }
    ],
}
FILLED = {"domain.devices.disks", "domain.devices.interfaces"}
"""lists into whose items admission writes values"""


def manifest(namespace: str, *paths: str, **spec: Any) -> Json:
    """A VM with these lists only."""
    template: Json = {}
    for path in paths:
        *parents, last = path.split(".")
        holder = template
        for parent in parents:
            holder = holder.setdefault(parent, {})
        holder[last] = copy.deepcopy(LISTS[path])
    body = {"template": {"spec": template}} if template else {}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "play", "namespace": namespace},
        "spec": {**body, **spec},
    }


def value(document: Json, path: str) -> Any:
    found = document["spec"]["template"]["spec"]
    for step in path.split("."):
        found = found[step]
    return found


async def test_a_second_manager_conflicts_only_over_filled_lists(libvirt: Admission, namespace: str) -> None:
    async def apply(document: Json, manager: str, *, force: bool = False) -> Json:
        return await libvirt.api.patch(
            MACHINES, namespace, "play", document, kind="apply", field_manager=manager, force=force
        )

    async def conflicts(document: Json, manager: str) -> bool:
        try:
            await apply(document, manager)
        except Conflict:
            return True
        return False

    whole = manifest(namespace, *LISTS, runStrategy="Halted")
    domain_of(whole).update(memory={"guest": "128Mi"}, machine={"type": "q35"})
    first = await apply(whole, "one")
    again = await apply(whole, "one")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert {path for path in LISTS if value(first, path) != LISTS[path]} == FILLED

    # A second manager applies one list at a time.
    found = {path for path in LISTS if await conflicts(manifest(namespace, path), f"of-{path}")}
    assert found == FILLED
    for machine_type, differs in (("q35", True), (domain_of(first)["machine"]["type"], False)):
        named = manifest(namespace)
        named["spec"]["template"] = {"spec": {"domain": {"machine": {"type": machine_type}}}}
        assert await conflicts(named, f"machine-{machine_type}") is differs
    # Neither a field outside the lists nor the values as they are stored conflict.
    await apply(manifest(namespace, runStrategy="Halted"), "power")
    await apply({**manifest(namespace), "metadata": {**whole["metadata"], "labels": {"a": "b"}}}, "labels")
    complete = manifest(namespace, *LISTS, runStrategy="Halted")
    complete["spec"]["template"]["spec"] = first["spec"]["template"]["spec"]
    two = await apply(complete, "two")
    assert two["spec"] == first["spec"]

    # The first manager's short manifest conflicts now, and loses nothing if it is forced.
    assert await conflicts(whole, "one")
    forced = await apply(whole, "one", force=True)
    assert forced["spec"] == first["spec"]

    # Items in another order and a new one: each old item keeps its values.
    changed = copy.deepcopy(whole)
    for path in FILLED:
        value(changed, path).reverse()
    value(changed, "networks").reverse()
    value(changed, "volumes").insert(0, {"name": "new", "emptyDisk": {"capacity": "1Gi"}})
    value(changed, "domain.devices.disks").insert(0, {"name": "new", "disk": {"bus": "virtio"}})
    after = await apply(changed, "one", force=True)
    for path in FILLED:
        before = {item["name"]: item for item in value(first, path)}
        assert {item["name"]: item for item in value(after, path) if item["name"] != "new"} == before
