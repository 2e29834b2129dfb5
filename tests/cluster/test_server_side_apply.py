"""Server-side apply of one VM by several field managers: a real API server, the webhook, the real defaulter."""

import asyncio
import copy
import os
import shutil
from time import monotonic
from typing import Any

import pytest

from controllers.shared.creation import DefaultingCreator
from defaulter.contract import Defaulter
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import VMS
from tests.builders import manifest as build_manifest
from tests.builders import vm_spec
from tests.cluster.test_admission import KUBECTL, Admission, api, domain_of, libvirt, namespace, real_defaulter

__all__ = ["api", "libvirt", "namespace", "real_defaulter"]

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
    return build_manifest(VMS, "play", {**body, **spec}, namespace)


def value(document: Json, path: str) -> Any:
    found = document["spec"]["template"]["spec"]
    for step in path.split("."):
        found = found[step]
    return found


async def test_a_second_manager_conflicts_only_over_filled_lists(libvirt: Admission, namespace: str) -> None:
    async def apply(document: Json, manager: str, *, force: bool = False) -> Json:
        return await libvirt.api.patch(
            VMS, namespace, "play", document, kind="apply", field_manager=manager, force=force
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


async def test_an_author_sets_what_admission_has_filled_in_a_vm_of_the_controllers(
    libvirt: Admission, namespace: str
) -> None:
    """Admission's values have no field manager, so that the user of a claim need not force them."""
    creating = DefaultingCreator(libvirt.api, VMS, Defaulter("http://unused"), "seed", monotonic)
    whole = manifest(namespace, *FILLED, "networks", "volumes", runStrategy="Halted")
    for name in ("first", "play"):
        (document,) = await creating([{**whole, "metadata": {"name": name, "namespace": namespace}}])
        created = await creating.create(document)
    assert domain_of(created)["cpu"]["cores"] == 1
    wanted = {"cpu": {"cores": 2}, "memory": {"guest": "256Mi"}}
    document = manifest(namespace)
    document["spec"]["template"] = {"spec": {"domain": wanted}}
    applied = await libvirt.api.patch(VMS, namespace, "play", document, kind="apply", field_manager="author")
    assert (domain_of(applied)["cpu"]["cores"], domain_of(applied)["memory"]["guest"]) == (2, "256Mi")


def playbook(namespace: str) -> Json:
    """A VM as a playbook writes it."""
    labels = {"app": "test"}
    devices = {path.rpartition(".")[2]: copy.deepcopy(LISTS[path]) for path in sorted(FILLED)}
    domain = {"machine": {"type": "q35"}, "memory": {"guest": "1Gi"}, "devices": devices}
    volumes = [
        {"name": "root", "containerDisk": {"image": "tiny"}},
        {"name": "data", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
    ]
    spec = {"domain": domain, "networks": copy.deepcopy(LISTS["networks"]), "volumes": volumes}
    halted = vm_spec(spec, labels=labels, runStrategy="Halted")
    return build_manifest(VMS, "play", halted, namespace, labels=labels)


async def generations_after_patches(api: Api, namespace: str) -> list[int]:
    """The generations of a new VM, and after its whole manifest as a merge patch, twice. Ansible's module sends it."""
    made = await api.create(VMS, playbook(namespace))
    patched = [await api.patch(VMS, namespace, "play", playbook(namespace)) for _ in range(2)]
    assert [each["spec"] for each in patched] == [made["spec"]] * 2
    return [each["metadata"]["generation"] for each in (made, *patched)]


async def test_a_whole_manifest_as_a_merge_patch_changes_nothing(libvirt: Admission, namespace: str) -> None:
    assert len(set(await generations_after_patches(libvirt.api, namespace))) == 1
    stored = await libvirt.api.get(VMS, namespace, "play")
    again = await libvirt.api.patch(VMS, namespace, "play", playbook(namespace))
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert domain_of(stored)["devices"] != domain_of(playbook(namespace))["devices"], "admission has filled the lists"


@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
@pytest.mark.parametrize(
    ("edit", "conflicts"),
    [
        pytest.param('s/"app": "test"/"app": "edited"/', True, id="a field of the first manager"),
        pytest.param('s/"labels": {/"labels": {"team": "shop",/', False, id="a field of nobody"),
        pytest.param('s/"threads": 1/"threads": 1, "dedicatedCpuPlacement": false/', False, id="beside filled fields"),
        pytest.param('s/"bus": "virtio"/"bus": "sata"/', True, id="a list"),
    ],
)
async def test_a_user_edits_what_a_tool_applies(
    libvirt: Admission, namespace: str, control_plane: Any, edit: str, *, conflicts: bool
) -> None:
    """`kubectl edit` is a second field manager, which updates and does not apply."""
    api = libvirt.api

    async def apply(*, force: bool = False) -> Json:
        document = playbook(namespace)
        return await api.patch(VMS, namespace, "play", document, kind="apply", field_manager="tool", force=force)

    first = await apply()
    command = (KUBECTL, f"--kubeconfig={control_plane.kubeconfig}", "-n", namespace, "edit", "vm", "play", "-o", "json")
    environment = {**os.environ, "KUBE_EDITOR": f"sed -i '{edit}'"}
    process = await asyncio.create_subprocess_exec(*map(str, command), env=environment)
    assert await process.wait() == 0
    edited = await api.get(VMS, namespace, "play")
    assert edited["metadata"]["generation"] > first["metadata"]["generation"] or edited["metadata"]["labels"] != {
        "app": "test"
    }
    if conflicts:
        with pytest.raises(Conflict, match="kubectl-edit"):
            await apply()
    after = await apply(force=conflicts)
    # What the tool does not write is the user's, and what it writes is the tool's. No device loses its identity.
    assert domain_of(after)["firmware"] == domain_of(first)["firmware"]
    for kind in ("disks", "interfaces"):
        written = {each["name"]: each for each in domain_of(playbook(namespace))["devices"][kind]}
        for item in domain_of(after)["devices"][kind]:
            assert written[item["name"]].items() <= item.items() or kind == "disks"
    assert domain_of(after)["devices"]["interfaces"] == domain_of(first)["devices"]["interfaces"]
    assert after["metadata"]["labels"]["app"] == "test"
