"""Lifecycle hooks of pools against the real API server, with a running controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from controllers.shared.sources import DATA_VOLUMES
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import PODS, PVCS, VMIS, VMS
from tests.builders import manifest
from tests.cluster.pooling import Place, controller, namespace, until
from tests.cluster.resting import rests
from tests.cluster.shell import Shell

Json = dict[str, Any]
DRAIN: Json = {"name": "drain", "transition": "Terminating", "timeoutSeconds": 600}
NOTIFY: Json = {"name": "notify", "transition": "Terminating", "timeoutSeconds": 600}
NEWEST = {"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}}


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig, "hooks") as found:
        yield found


async def launcher(place: Place, vm: str) -> None:
    """The pod that KubeVirt starts for a VMI, with the VMI's labels."""
    metadata = (await place.api.get(VMIS, place.namespace, vm))["metadata"]
    labels = {**metadata["labels"], meta.KUBEVIRT_CREATED_BY: metadata["uid"]}
    container = {"name": "compute", "image": "launcher"}
    spec = {"containers": [container], "automountServiceAccountToken": False, "enableServiceLinks": False}
    pod = manifest(PODS, f"launcher-{vm}", spec, labels=labels)
    await until(lambda: service_account(place), True)
    await place.api.request("POST", PODS.path(place.namespace), body=pod)


async def service_account(place: Place) -> bool:
    found = await place.api.request("GET", f"/api/v1/namespaces/{place.namespace}/serviceaccounts")
    return bool(found["items"])


async def in_service(place: Place, vm: str) -> tuple[bool, bool]:
    """Whether the VMI and its launcher pod have the label that Services select."""
    vmi = await place.api.get(VMIS, place.namespace, vm)
    pod = await place.api.get(PODS, place.namespace, f"launcher-{vm}")
    found = [meta.IN_SERVICE in (each["metadata"].get("labels") or {}) for each in (vmi, pod)]
    return found[0], found[1]


async def transition(place: Place, vm: str) -> str:
    machines = await place.vms()
    return str((machines.get(vm) or {"metadata": {}})["metadata"].get("labels", {}).get(meta.TRANSITION, ""))


async def test_a_vm_leaves_its_services_and_waits_for_its_hooks_across_a_restart_of_the_controller(
    control_plane: Any, place: Place
) -> None:
    shell = Shell(place, control_plane.kubeconfig)
    await place.pool(2, scaleInStrategy=NEWEST, lifecycleHooks=[DRAIN, NOTIFY])
    async with controller(control_plane.kubeconfig) as running:
        await until(place.names, ["web-1", "web-2"])
        await place.is_ready("web-1", "web-2")
        for name in ("web-1", "web-2"):
            await launcher(place, name)
            assert await in_service(place, name) == (True, True)
        await until(lambda: ready(place), 2)  # the controller stops VMs that are not ready first
        smaller = place.document(1, scaleInStrategy=NEWEST, lifecycleHooks=[DRAIN, NOTIFY])
        chosen = (await shell.json("plan", "-f", "-", document=smaller))["plan"]
        victim = chosen[0]["vm"]
        assert [(row["action"], row["vm"]) for row in chosen] == [("Hold", victim), ("Delete", victim)]
        await place.change(replicas=1)
        await until(lambda: transition(place, victim), "Terminating")
        assert await in_service(place, victim) == (False, False)
        await rests(running.writes, 3)
    before = (await place.vms())[victim]["metadata"]["annotations"]
    async with controller(control_plane.kubeconfig) as running:
        await rests(running.writes, 3)
        held = (await place.vms())[victim]["metadata"]["annotations"]
        assert held == before, "a restart neither repeats nor forgets the hold"
        condition = await place.condition("VMsHeld")
        assert condition["message"] == f"1 VM waits for lifecycle hooks: {victim} (drain, notify)"
        assert (await place.seen())["status"]["heldReplicas"] == 1
        assert "lifecycle hooks hold it: drain" in str((await shell.json("why", victim))["present"])
        listed = await shell.json("lifecycle", "list", "web")
        assert [(row["vm"], row["hook"]) for row in listed] == [(victim, "drain"), (victim, "notify")]
        several = await shell.run("lifecycle", "complete", victim)
        assert "choose one with --hook: drain, notify" in several.stderr
        await shell.json("lifecycle", "complete", victim, "--hook", "drain")
        assert await place.names() == ["web-1", "web-2"]
        await shell.json("lifecycle", "complete", victim)
        await until(lambda: count(place), 1)


async def ready(place: Place) -> int:
    return int((await place.seen())["status"]["readyReplicas"])


async def count(place: Place) -> int:
    return len(await place.names())


async def test_a_vm_that_stays_returns_to_its_services(control_plane: Any, place: Place) -> None:
    await place.pool(1, scaleInStrategy=NEWEST, lifecycleHooks=[DRAIN])
    async with controller(control_plane.kubeconfig):
        await until(place.names, ["web-1"])
        await place.is_ready("web-1")
        await launcher(place, "web-1")
        await place.change(replicas=0)
        await until(lambda: transition(place, "web-1"), "Terminating")
        await place.change(replicas=1)
        await until(lambda: transition(place, "web-1"), "")
        await until(lambda: in_service(place, "web-1"), (True, True))
        annotations = (await place.vms())["web-1"]["metadata"].get("annotations") or {}
        assert not [key for key in annotations if key.startswith((meta.HOOK_PREFIX, meta.TRANSITION))]


async def test_a_hook_that_times_out_lets_the_pool_go_on(control_plane: Any, place: Place) -> None:
    await place.pool(1, scaleInStrategy=NEWEST, lifecycleHooks=[DRAIN])
    async with controller(control_plane.kubeconfig):
        await until(place.names, ["web-1"])
        await place.change(replicas=0)
        await until(lambda: transition(place, "web-1"), "Terminating")
        hook = {f"{meta.HOOK_PREFIX}drain": "2026-01-01T00:00:00Z"}
        await place.api.patch(VMS, place.namespace, "web-1", {"metadata": {"annotations": hook}})
        await until(place.names, [])


OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"basePolicy": "Newest"}}}
LONG_AGO = "2026-01-01T00:00:00Z"


async def retained(place: Place, count: int) -> dict[str, Json]:
    """Scales a pool in that has disks, and returns the claims that it retained."""
    await until(place.names, [f"web-{n}" for n in range(1, count + 1)])
    for name, vm in (await place.vms()).items():
        await place.disk(name.replace("web", "root"), vm)
    await place.change(replicas=0)
    await until(place.names, [])
    await until(lambda: kept(place), count)
    return await place.disks()


async def kept(place: Place) -> int:
    return int(((await place.seen()).get("status") or {}).get("retainedDisks", 0))


async def age(place: Place, claim: str) -> None:
    annotations = {meta.RETAINED_AT: LONG_AGO}
    await place.api.patch(PVCS, place.namespace, claim, {"metadata": {"annotations": annotations}})


async def volumes(place: Place) -> list[str]:
    items, _ = await place.api.list(DATA_VOLUMES, place.namespace)
    return sorted(each["metadata"]["name"] for each in items)


async def test_expired_disks_go_but_none_that_is_used_or_not_retained(control_plane: Any, place: Place) -> None:
    shell = Shell(place, control_plane.kubeconfig)
    await place.pool(3, scaleInStrategy=OFFLINE, retainedDisks={"ttlSeconds": 3600})
    async with controller(control_plane.kubeconfig) as running:
        claims = await retained(place, 3)
        assert all(each["metadata"]["annotations"][meta.RETAINED_AT] for each in claims.values())
        listed = {row["claim"]: row["expires"] for row in await shell.json("disks")}
        status = {each["name"]: each["expiresAt"] for each in (await place.seen())["status"]["retained"]}
        assert listed == status
        await rests(running.writes, 3)
        spec = {
            "containers": [{"name": "backup", "image": "backup"}],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "root-2"}}],
        }
        pod = manifest(PODS, "backup", spec)
        await until(lambda: service_account(place), True)
        await place.api.request("POST", PODS.path(place.namespace), body=pod)
        for claim in ("root-1", "root-2"):
            await age(place, claim)
        await until(lambda: sorted_disks(place), ["root-2", "root-3"])
        await until(lambda: used(place, "root-2"), True)
        await until(lambda: volumes(place), ["root-2", "root-3"])
        await rests(running.writes, 3)
        shown = await shell.run("disks")
        assert "in use at" in next(line for line in shown.stdout.splitlines() if line.startswith("root-2"))
        # A disk that a user takes out of the pool's hands is the user's.
        await place.api.patch(PVCS, place.namespace, "root-3", {"metadata": {"labels": {meta.KEPT_BY: "me"}}})
        await age(place, "root-3")
        await until(lambda: kept(place), 1)
        assert await sorted_disks(place) == ["root-2", "root-3"]


async def sorted_disks(place: Place) -> list[str]:
    return sorted(await place.disks())


async def used(place: Place, claim: str) -> bool:
    return meta.USED_AT in (await place.disks())[claim]["metadata"].get("annotations", {})


async def test_the_oldest_disks_above_the_limit_go_and_a_returned_disk_stays(control_plane: Any, place: Place) -> None:
    await place.pool(3, scaleInStrategy=OFFLINE)
    async with controller(control_plane.kubeconfig):
        await retained(place, 3)
    # A controller that hears of the limit before the age of a disk would delete another one.
    await age(place, "root-3")
    await place.change(retainedDisks={"max": 2})
    async with controller(control_plane.kubeconfig):
        await until(lambda: sorted_disks(place), ["root-1", "root-2"])
        await place.change(replicas=1)
        await until(place.names, ["web-1"])
        await until(lambda: kept(place), 1)
        disk = (await place.disks())["root-1"]["metadata"]
        assert meta.RETAINED_AT not in disk.get("annotations", {})
