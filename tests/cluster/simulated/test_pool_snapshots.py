"""Pools that take snapshots before updates, and restore them, with the engine's snapshots of simulated disks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from controllers.pool.actions import LabelState
from controllers.pool.pools import POOLS
from controllers.pool.vm_snapshots import RESTORE_NAME, VM_RESTORES, VM_SNAPSHOTS
from controllers.pool.writes.retained_disks import label_state
from controllers.shared.vm import PERSISTENT_STATE
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import PVCS, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest
from tests.cluster.pooling import Place, controller, template, until
from tests.cluster.shell import Shell
from tests.cluster.simulated.test_pool_rollout import bigger, complete, runs

Json = dict[str, Any]

TAKING = {"proactive": {"snapshotBeforeUpdate": True, "selectionPolicy": {"basePolicy": "Oldest"}}}


@pytest_asyncio.fixture
async def shell(simulated: StackPaths, guests: Place) -> AsyncIterator[Shell[Place]]:
    async with controller(simulated.kubeconfig):
        yield Shell(guests, simulated.kubeconfig)


async def snapshots(place: Place) -> dict[str, Json]:
    """The snapshots by VM; a VM must have only one."""
    items, _ = await place.api.list(VM_SNAPSHOTS, place.namespace)
    found = {each["metadata"]["labels"][meta.VM]: each for each in items}
    assert len(found) == len(items)
    return found


async def claims(place: Place) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in (await place.disks()).items()}


async def test_each_vm_has_a_snapshot_of_before_its_update(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2, maxUnavailable=1, updateStrategy=TAKING)
    await complete(place)
    before = {name: vm["metadata"]["labels"][meta.REVISION] for name, vm in (await place.vms()).items()}
    plan = await shell.json("plan", "-f", "-", document=place.document(2, template=bigger(), updateStrategy=TAKING))
    assert [(row["action"], row["vm"]) for row in plan["plan"]][:3] == [
        ("TakeSnapshot", "web-1"),
        ("Update", "web-1"),
        ("Restart", "web-1"),
    ]
    assert plan["plan"][0]["reason"] == "before the update, of disks with 1Gi"
    await place.change(template=bigger())
    await complete(place)
    taken = await snapshots(place)
    assert {vm: each["metadata"]["labels"][meta.REVISION] for vm, each in taken.items()} == before
    assert all(each["status"]["readyToUse"] for each in taken.values())
    assert {each["status"]["snapshotVolumes"]["includedVolumes"][0] for each in taken.values()} == {"root"}
    machines = await place.vms()
    assert {vm["metadata"]["annotations"][meta.UPDATES] for vm in machines.values()} == {"1"}
    assert (await place.seen())["status"]["snapshots"] == 2
    await place.api.delete(VMS, place.namespace, "web-1")
    await until(place.names, ["web-1", "web-2"])
    assert set(await snapshots(place)) == {"web-1", "web-2"}, "a snapshot outlives its VM"
    await place.api.delete(POOLS, place.namespace, "web")

    async def left() -> int:
        return len(await snapshots(place))

    await until(left, 0)


async def test_a_failed_snapshot_holds_its_vm_and_not_the_others(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2, maxUnavailable=1, updateStrategy=TAKING)
    await complete(place)
    await place.meta("web-1", annotations={"sim.poolhouse.dev/snapshot-fails": "true"})
    await place.change(template=bigger())

    async def refused() -> Any:
        found = (await snapshots(place)).get("web-1", {})
        return found.get("status", {}).get("error", {}).get("message")

    await until(refused, "the storage refuses snapshots (simulated)")
    name = (await snapshots(place))["web-1"]["metadata"]["name"]
    explained = await shell.run("why", "web-1")
    assert f"it waits: its snapshot {name} is not ready yet: the storage refuses snapshots" in explained.output
    late = {"phase": "Failed", "conditions": [{"type": "Failure", "status": "True", "reason": "deadline exceeded"}]}
    await place.api.patch(VM_SNAPSHOTS, place.namespace, name, {"status": late}, subresource="status")

    async def cores() -> Any:
        machines = await place.vms()
        return [machines[name]["spec"]["template"]["spec"]["domain"].get("cpu") for name in sorted(machines)]

    await until(cores, [None, {"cores": 4}])

    async def reason() -> Any:
        found = await place.condition("SnapshotFailure")
        return found.get("status"), found.get("reason")

    await until(reason, ("True", "SnapshotFailed"))
    found = await place.condition("SnapshotFailure")
    assert f"not updated because of failed snapshots: web-1; its snapshot {name} failed" in found["message"]
    await place.meta("web-1", annotations={"sim.poolhouse.dev/snapshot-fails": None})
    await place.api.delete(VM_SNAPSHOTS, place.namespace, name)
    await complete(place)
    assert (await place.condition("SnapshotFailure"))["reason"] == "NoSnapshotFailure"


async def test_only_the_claim_of_the_restore_gets_the_label_of_kubevirt(place: Place) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
    name, labels = "persistent-state-for-web-1-x", {"app": "web"}
    body = manifest(PVCS, name, spec, place.namespace, labels=labels, annotations={RESTORE_NAME: "restore"})
    await place.api.create(PVCS, body)
    with pytest.raises(Conflict):
        await label_state(place.api, place.namespace, LabelState("web-1", name, "another", ""))
    assert (await place.disks())[name]["metadata"]["labels"] == labels
    await label_state(place.api, place.namespace, LabelState("web-1", name, "restore", ""))
    assert (await place.disks())[name]["metadata"]["labels"] == {**labels, PERSISTENT_STATE: "web-1"}


async def test_undo_restores_the_disks_of_before_the_update(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2, maxUnavailable=1, updateStrategy=TAKING)
    await complete(place)
    refused = await shell.run("rollout", "undo", "web", "--restore-snapshots")
    assert refused.exit_code == 1, "no earlier revision"
    await place.change(template=bigger())
    await complete(place)
    disks, vmis = await claims(place), await runs(place)
    answer = await shell.run("rollout", "undo", "web", "--restore-snapshots")
    assert answer.stdout == "web has the template of revision 1 again, and 2 VMs get the disks of before the update\n"
    await complete(place)

    async def restored() -> set[str]:
        request = (await place.seen())["metadata"]["annotations"][meta.RESTORE]
        machines = (await place.vms()).items()
        return {name for name, vm in machines if vm["metadata"]["annotations"].get(meta.RESTORED) == request}

    await until(restored, {"web-1", "web-2"})
    after = await claims(place)
    assert after.keys() == disks.keys(), "the disks keep their names"
    assert not set(after.values()) & set(disks.values()), "and have another content"
    assert not set((await runs(place)).values()) & set(vmis.values())
    for vm in (await place.vms()).values():
        assert "cpu" not in vm["spec"]["template"]["spec"]["domain"]
        assert vm["spec"]["running"] is True

    async def left() -> Any:
        return (await place.api.list(VM_RESTORES, place.namespace))[0]

    await until(left, [])
    await complete(place)


async def test_a_vm_that_was_halted_stays_halted_when_it_is_restored(shell: Shell[Place]) -> None:
    place = shell.place
    halted = {"template": template(running=False)}
    await place.pool(1, updateStrategy=TAKING, **halted)
    await complete(place)
    changed = bigger()
    changed["spec"]["running"] = False
    await place.change(template=changed)
    await complete(place)
    assert set(await snapshots(place)) == {"web-1"}
    disks = await claims(place)
    assert (await shell.run("rollout", "undo", "web", "--restore-snapshots")).exit_code == 0

    async def replaced() -> bool:
        found = await claims(place)
        return found.keys() == disks.keys() and found != disks

    await until(replaced, True)
    await complete(place)
    assert (await place.vms())["web-1"]["spec"]["running"] is False
    assert (await place.api.list(VMIS, place.namespace))[0] == []
