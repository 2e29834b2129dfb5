"""The pool controller against the real API server: what is in the cluster in the end, whatever happened on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web as web_server

from controllers.main import Configuration, Settings, run
from controllers.pool.pools import POOLS
from controllers.shared.sources import DATA_VOLUMES
from controllers.shared.vm import PERSISTENT_STATE
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds import KINDS, POOL, meta
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.manifests.crd import crd
from poolhouse.runtime.errors import Forbidden, Invalid, NotFound
from poolhouse.runtime.resource import CRDS, NAMESPACES, PVCS, VMS
from tests.cluster.faulty import Faulty
from tests.cluster.pooling import (
    PATIENCE_SECONDS,
    Place,
    background,
    controller,
    garbage_collector_knows,
    serve,
    template,
    until,
)
from tests.cluster.resting import rests
from tests.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, QUOTAS
from tests.webhook.fake_defaulter import FakeDefaulter

Json = dict[str, Any]

ADMISSION = "admissionregistration.k8s.io"
OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"basePolicy": "Newest"}}}


def web(*ordinals: int) -> list[str]:
    return sorted(f"web-{ordinal}" for ordinal in ordinals)


MARKED = {
    "labels": {"app.kubernetes.io/instance": "shop"},
    "annotations": {"argocd.argoproj.io/tracking-id": "shop:kubevirt.io/VirtualMachinePool:default/web"},
}


@pytest.mark.sentence("1.1")
async def test_a_pool_makes_its_vms_and_rests(control_plane: Any, place: Place) -> None:
    await place.pool(3)
    async with controller(control_plane.kubeconfig) as running:
        await until(place.names, web(1, 2, 3))
        await place.is_ready(*web(1, 2, 3))
        await until(lambda: condition(place, "Progressing"), ("True", "Complete"))
        status = (await place.seen())["status"]
        assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
        assert status["labelSelector"] == "poolhouse.dev/pool=web"
        await rests(running.writes, 5)
    for machine in (await place.vms()).values():
        assert machine["metadata"]["labels"]["poolhouse.dev/pool"] == "web"
        assert machine["spec"]["template"]["metadata"]["labels"]["poolhouse.dev/pool"] == "web"


async def test_a_pool_has_no_more_vms_than_the_limit_of_its_namespace(control_plane: Any, place: Place) -> None:
    """As stored while the webhook was down."""
    await place.pool(10**9)

    async def limit(annotation: str) -> None:
        change = {"metadata": {"annotations": {meta.MAX_REPLICAS: annotation}}}
        await place.api.patch(NAMESPACES, None, place.namespace, change)

    async with controller(control_plane.kubeconfig, max_replicas=3) as running:
        await until(place.names, web(1, 2, 3))
        await until(lambda: status(place, "desiredReplicas"), 3)
        assert (await place.condition("Stalled"))["reason"] == "TooManyReplicas"
        await rests(running.writes, 5)
        await limit("4")
        await until(place.names, web(1, 2, 3, 4))
        await limit("2")
        before = (await place.vms())["web-2"]["metadata"]["uid"]
        await place.api.delete(VMS, place.namespace, "web-2")
        await until(lambda: is_there(place, "web-2", other_than=before), True)
        assert await place.names() == web(1, 2, 3, 4)
        await place.change(replicas=2)
        await until(lambda: status(place, "desiredReplicas"), 2)
        await place.change(replicas=9)
        await until(lambda: status(place, "desiredReplicas"), 2)


@pytest.mark.sentence("1.32")
async def test_a_gap_is_filled_first_and_a_strangers_name_is_skipped(control_plane: Any, place: Place) -> None:
    stranger = await place.vm("web-2", labels={"poolhouse.dev/pool": "web"})
    await place.pool(3)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1, 2, 3, 4))
        before = (await place.vms())["web-3"]["metadata"]["uid"]
        await place.api.delete(VMS, place.namespace, "web-3")
        await until(lambda: is_there(place, "web-3", other_than=before), True)
        await until(place.names, web(1, 2, 3, 4))
        found = (await place.vms())["web-2"]
        assert found["metadata"]["uid"] == stranger["metadata"]["uid"]
        assert "ownerReferences" not in found["metadata"], "nothing is adopted by its label"
        await place.change(replicas=0)
        await until(place.names, web(2))


@pytest.mark.sentence("1.19", "1.33")
async def test_retained_disks_outlive_their_vm_and_come_back_to_it(control_plane: Any, place: Place) -> None:
    made = await place.pool(2, scaleInStrategy=OFFLINE)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1, 2))
        for name, vm in (await place.vms()).items():
            disk = name.replace("web", "root")
            await place.disk(disk, vm)
            for resource in (PVCS, DATA_VOLUMES):
                await place.api.patch(resource, place.namespace, disk, {"metadata": MARKED})
        await place.change(replicas=0)
        await until(place.names, [])
        await until(lambda: status(place, "retainedDisks"), 2)
        found = await place.disks()
        labels = {name: d["metadata"]["labels"] for name, d in found.items()}
        assert all(each.pop(meta.DISK_TEMPLATE) for each in labels.values())
        assert labels == {
            f"root-{n}": {meta.KEPT_BY: made["metadata"]["uid"], meta.KEPT_FOR: f"web-{n}"} for n in (1, 2)
        }
        volume = await place.api.get(DATA_VOLUMES, place.namespace, "root-1")
        assert not volume["metadata"].get("ownerReferences")
        for each in (volume, found["root-1"]):
            assert not without_tracking_marks(each["metadata"]), "a GitOps tool would delete it"

        await place.change(replicas=1)
        await until(place.names, web(1))
        await until(lambda: status(place, "retainedDisks"), 1)
        vm = (await place.vms())["web-1"]
        volume = await place.api.get(DATA_VOLUMES, place.namespace, "root-1")
        assert volume["metadata"]["ownerReferences"][0]["uid"] == vm["metadata"]["uid"]
        # Deleted by somebody else, it goes with all it has.
        await place.change(paused=True)
        await place.api.delete(VMS, place.namespace, "web-1")
        await until(lambda: sorted_disks(place), ["root-2"])


@pytest.mark.sentence("1.33")
async def test_the_state_of_a_tpm_is_retained_with_the_disks(control_plane: Any, place: Place) -> None:
    """KubeVirt keeps it on a claim of its own, and finds the claim by its label."""
    secure = template()
    secure["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = {"persistent": True}
    await place.pool(1, template=secure, scaleInStrategy=OFFLINE)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1))
        vm = (await place.vms())["web-1"]
        await place.disk("root-1", vm)
        owner = controller_reference("kubevirt.io/v1", "VirtualMachine", "web-1", vm["metadata"]["uid"])
        for name, labels in (
            ("persistent-state-for-web-1-x7k2p", {PERSISTENT_STATE: "web-1"}),
            ("persistent-state-for-web-1", {}),  # as before KubeVirt 1.4
        ):
            await place.claim(name, owner, labels=labels)
        await place.change(replicas=0)
        await until(place.names, [])
        await until(lambda: status(place, "retainedDisks"), 3)

        await place.change(replicas=1)
        await until(place.names, web(1))
        await until(lambda: status(place, "retainedDisks"), 0)
        again = (await place.vms())["web-1"]["metadata"]["uid"]
        claims, _ = await place.api.list(PVCS, place.namespace, label_selector=PERSISTENT_STATE)
        assert [each["metadata"]["ownerReferences"][0]["uid"] for each in claims] == [again]
        assert meta.KEPT_BY not in claims[0]["metadata"]["labels"]


@pytest.mark.sentence("1.34")
async def test_a_name_is_given_again_only_when_its_disks_are_gone_and_no_other_vm_waits(
    control_plane: Any, place: Place
) -> None:
    await place.pool(3)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1, 2, 3))
        await place.disk("root-1", (await place.vms())["web-1"])
        await place.api.patch(
            DATA_VOLUMES, place.namespace, "root-1", {"metadata": {"finalizers": ["tests.poolhouse.dev/stuck"]}}
        )
        await place.change(replicas=0)
        await until(place.names, [])
        await place.change(replicas=3)
        await until(place.names, web(2, 3))
        await until(lambda: said(place, "Available", "web-1: disks of an earlier VM of this name exist"), True)
        assert await place.names() == web(2, 3), "nothing is made upon a disk that is being deleted"
        await place.api.patch(DATA_VOLUMES, place.namespace, "root-1", {"metadata": {"finalizers": []}})
        await until(place.names, web(1, 2, 3))
        assert await place.disks() == {}


async def test_a_pool_uses_no_disk_that_another_pool_has_retained(control_plane: Any, place: Place) -> None:
    labels = {meta.KEPT_BY: "of-a-pool-before", meta.KEPT_FOR: "web-1"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"namespace": place.namespace, "name": "root-1", "labels": labels}
    await place.api.create(PVCS, {"metadata": metadata, "spec": claim})
    await place.pool(2)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(2, 3))


@pytest.mark.sentence("1.28", "1.30")
async def test_a_vm_is_detached_and_returned_by_its_owner_reference(control_plane: Any, place: Place) -> None:
    await place.pool(2)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1, 2))
        owners = (await place.vms())["web-1"]["metadata"]["ownerReferences"]
        await place.meta("web-1", ownerReferences=None)
        await until(place.names, web(1, 2, 3))
        incomplete = [{key: owners[0][key] for key in ("apiVersion", "kind", "name", "uid")}]
        await place.meta("web-1", ownerReferences=incomplete, annotations={"poolhouse.dev/scale-in": "Protect"})
        await until(lambda: count(place), 2)
        await until(lambda: owners_of(place, "web-1"), owners)
        await place.meta("web-1", ownerReferences=None)
        await until(lambda: count(place), 3)
        await place.api.delete(VMS, place.namespace, "web-1")
        await until(lambda: count(place), 2)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_pool_is_deleted_while_a_vm_waits_for_its_disks(
    control_plane: Any, place: Place, propagation: str
) -> None:
    await place.pool(1, scaleInStrategy=OFFLINE)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1))
        await place.disk("root-1", (await place.vms())["web-1"])
    # Begun while nobody finishes it: as if the controller had been killed after its delete.
    uid = (await place.seen())["metadata"]["uid"]
    await place.meta("web-1", finalizers=[meta.KEEP_DISKS], annotations={meta.KEPT_BY: uid})
    await place.api.delete(VMS, place.namespace, "web-1")
    await place.api.delete(POOLS, place.namespace, "web", propagation=propagation)
    async with controller(control_plane.kubeconfig):
        await until(place.names, [])
        await until(lambda: gone(place), True)
        assert (await place.disks())["root-1"]["metadata"]["labels"][meta.KEPT_BY] == uid


async def test_a_disk_that_a_vm_has_left_is_in_no_other(control_plane: Any, place: Place) -> None:
    await place.pool(1)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1))
        vm = (await place.vms())["web-1"]
        await place.disk("root-1", vm, {meta.KUBEVIRT_CREATED_BY: vm["metadata"]["uid"]})
        await garbage_collector_knows(place.api, DATA_VOLUMES, place.namespace, "root-1")
        await place.api.delete(VMS, place.namespace, "web-1", propagation="Orphan")
        await until(place.names, web(2))
    await place.change(replicas=2)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(2, 3))
        assert "ownerReferences" not in (await place.api.get(DATA_VOLUMES, place.namespace, "root-1"))["metadata"]


async def test_a_claim_that_a_vm_has_left_is_in_no_other(control_plane: Any, place: Place) -> None:
    """CDI has collected its DataVolume."""
    await place.claim("root-1", labels={meta.KUBEVIRT_CREATED_BY: "gone"})
    await place.pool(1)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(2))


async def test_a_vm_that_was_marked_and_not_deleted_is_marked_no_more(control_plane: Any, place: Place) -> None:
    await place.pool(1, scaleInStrategy=OFFLINE)
    async with controller(control_plane.kubeconfig):
        await until(place.names, web(1))
        await place.meta("web-1", finalizers=["example.com/theirs", meta.KEEP_DISKS])
        await until(lambda: finalizers(place, "web-1"), ["example.com/theirs"])
        await place.meta("web-1", finalizers=None)


async def test_the_burst_and_an_old_store_never_make_one_too_many(control_plane: Any, place: Place) -> None:
    await place.pool(0)
    async with controller(control_plane.kubeconfig, burst=7) as running:
        made = await place.api.list(VMS, place.namespace)
        seen: set[str] = set()
        watch = asyncio.create_task(_watched(place, made[1], seen))
        for wanted in (20, 5, 30, 0, 25):
            await place.change(replicas=wanted)
            await asyncio.sleep(0.4)
        # On the way to another number, as many are passed by.
        await until(lambda: counted(place), (True, 25))
        await until(lambda: condition(place, "Progressing"), ("True", "ScalingVMs"))
        await rests(running.writes, 1)
        assert await count(place) == 25
        assert not watch.done(), "nobody was watching"
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert seen <= set(web(*range(1, 31)))


async def _watched(place: Place, version: str, seen: set[str]) -> None:
    async for kind, document in place.api.watch(
        VMS, place.namespace, resource_version=version, timeout_seconds=3600, idle_timeout_seconds=3600
    ):
        if kind == "ADDED":
            seen.add(document["metadata"]["name"])


async def test_replica_failure_ends_with_the_refusal(control_plane: Any, place: Place) -> None:
    hard = {"count/virtualmachines.kubevirt.io": "2"}
    await place.api.create(QUOTAS, {"metadata": {"namespace": place.namespace, "name": "few"}, "spec": {"hard": hard}})
    # A young control plane's quota controller takes its time to hear of our kinds.
    await until(lambda: quota_counts(place), True)
    await place.pool(4)
    async with controller(control_plane.kubeconfig):
        await until(lambda: condition(place, "ReplicaFailure"), ("True", "FailedCreate"))
        # Which two, is whoever was first: after the first one two are made at once.
        await until(lambda: count(place), 2)
        # Before, it may say that the quota is not known yet.
        await until(lambda: said(place, "ReplicaFailure", "exceeded quota"), True)
        await place.api.delete(QUOTAS, place.namespace, "few")
        # By then two minutes may lie between two tries.
        await until(place.names, web(1, 2, 3, 4), 3 * PATIENCE_SECONDS)
        await until(lambda: condition(place, "ReplicaFailure"), ("False", "NoFailure"))


@pytest.mark.parametrize("defaulter", [None, FakeDefaulter()], ids=["alone", "beside a defaulter"])
async def test_a_refused_vm_does_not_delay_other_vms(
    control_plane: Any, place: Place, defaulter: FakeDefaulter | None
) -> None:
    await forbid(place, "request.name != (request.operation == 'DELETE' ? 'web-3' : 'web-1')", "web-1")
    try:
        await place.pool(4)
        async with controller(control_plane.kubeconfig, defaulter=defaulter):
            await until(place.names, web(2, 3, 4))
            await until(lambda: condition(place, "ReplicaFailure"), ("True", "FailedCreate"))
            await place.meta("web-3", annotations={meta.SCALE_IN: "First"})
            await place.meta("web-4", annotations={meta.SCALE_IN: "Protect"})
            await place.is_ready("web-4")
            await until(lambda: status(place, "readyReplicas"), 1)  # so the controller has the annotations
            await place.change(replicas=1)
            await until(place.names, web(3, 4))
            await until(lambda: said(place, "ReplicaFailure", "Delete web-3"), True)
    finally:
        for each in (ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES):
            await place.api.delete(each, None, place.namespace)


async def test_a_pool_with_an_invalid_spec_has_a_condition_and_stops_no_other_pool(
    control_plane: Any, place: Place
) -> None:
    """Its CRD is opened for a moment, as one of another release might be."""
    open_crd = crd(POOL)
    for version in open_crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        spec["maxUnavailable"] = {"x-kubernetes-int-or-string": True}
    await place.api.patch(CRDS, None, POOL.crd_name, open_crd, kind="apply", field_manager="tests", force=True)
    try:
        await until(lambda: takes_anything(place), True)
        async with controller(control_plane.kubeconfig):
            # Makes no disk: the odd pool would leave out each ordinal whose disk is already a VM's of this one.
            await place.pool(1, name="right", template=template(dataVolumeTemplates=[]))
            await until(place.names, ["right-1"])
            await until(lambda: condition(place, "Progressing", "odd"), ("False", "InvalidSpec"))
            await until(lambda: said(place, "Progressing", "maxUnavailable", "odd"), True)
            await place.change("odd", maxUnavailable=1)
            await until(place.names, ["odd-1", "right-1"])
    finally:
        await serve(place.api, POOL)
        # Others share the control plane, and a schema takes a moment to be everybody's.
        await until(lambda: takes_anything(place, dry_run=True), False)


async def takes_anything(place: Place, *, dry_run: bool = False) -> bool:
    body = place.document(1, "odder" if dry_run else "odd", maxUnavailable="some")
    try:
        await place.api.create(POOLS, body, dry_run=dry_run)
    except Invalid:
        return False
    return True


async def condition(place: Place, kind: str, name: str = "web") -> tuple[str, str] | None:
    found = await place.condition(kind, name)
    return (found["status"], found["reason"]) if found else None


async def said(place: Place, kind: str, word: str, name: str = "web") -> Any:
    """Whether a condition's message has the word, or what it has instead."""
    message = (await place.condition(kind, name)).get("message", "")
    return word in message or message


async def status(place: Place, field: str) -> Any:
    return ((await place.seen()).get("status") or {}).get(field)


async def counted(place: Place) -> tuple[bool, int]:
    """Whether the last change was looked at, and how many VMs the pool then says to have."""
    found = await place.seen()
    told = found.get("status") or {}
    looked = told.get("observedGeneration") == found["metadata"]["generation"]
    return looked, told.get("replicas", 0)


async def count(place: Place) -> int:
    return len(await place.vms())


async def owners_of(place: Place, name: str) -> Any:
    return (await place.vms())[name]["metadata"].get("ownerReferences")


async def is_there(place: Place, name: str, other_than: str) -> bool:
    found = (await place.vms()).get(name)
    return found is not None and found["metadata"]["uid"] != other_than


async def sorted_disks(place: Place) -> list[str]:
    return sorted(await place.disks())


async def finalizers(place: Place, name: str) -> list[str]:
    return list((await place.vms())[name]["metadata"].get("finalizers") or [])


async def gone(place: Place) -> bool:
    try:
        await place.seen()
    except NotFound:
        return True
    return False


async def forbid(place: Place, allowed: str, refused: str) -> None:
    """Writes of VMs here for which that doesn't hold, as for the making of the one that is named."""
    rule = {"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
    constraints = {"resourceRules": [{**rule, "resources": [VMS.plural]}], "namespaceSelector": here}
    validations = [{"expression": allowed, "message": "not today", "reason": "Forbidden"}]
    spec: Json = {"matchConstraints": constraints, "validations": validations}
    await place.api.create(ADMISSION_POLICIES, {"metadata": {"name": place.namespace}, "spec": spec})
    spec = {"policyName": place.namespace, "validationActions": ["Deny"]}
    await place.api.create(ADMISSION_POLICY_BINDINGS, {"metadata": {"name": place.namespace}, "spec": spec})

    async def holds() -> bool:
        probe = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": template()["spec"]}
        probe["metadata"] = {"namespace": place.namespace, "name": refused}
        try:
            await place.api.create(VMS, probe, dry_run=True)
        except Forbidden:
            return True
        return False

    await until(holds, True)


async def quota_counts(place: Place) -> bool:
    return bool((await place.api.get(QUOTAS, place.namespace, "few")).get("status", {}).get("hard"))


class Slow(Faulty):
    """Answers creations of VMs late, and counts how many it is asked for at once."""

    open = most = 0

    async def _forward(self, request: web_server.Request, watching: bool, fault: str) -> web_server.StreamResponse:
        if request.method != "POST" or not request.path.endswith(f"/{VMS.plural}"):
            return await super()._forward(request, watching, fault)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.3)
        # After the answer, the next batch may come before this request has ended here.
        self.open -= 1
        return await super()._forward(request, watching, fault)


@pytest.mark.parametrize(
    ("burst", "most"),
    [
        pytest.param("", 4, id="batches of 1, 2 and 4, until the API server has refused none"),
        pytest.param("2", 2, id="a setting"),
    ],
)
@pytest.mark.sentence("1.45")
async def test_the_burst_limits_the_vms_that_the_controllers_create_at_once(
    control_plane: Any, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, burst: str, most: int
) -> None:
    others = ",".join(kind.plural for kind in KINDS if kind is not POOL)
    environment = {"POOLHOUSE_LEADER_ELECTION": "false", "POOLHOUSE_LISTEN": "127.0.0.1:0"}
    environment |= {"POOLHOUSE_KINDS_OFF": others, "POOLHOUSE_BURST": burst}
    slow, kubeconfig = Slow(control_plane.kubeconfig, Random(1)), tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await place.pool(7)
    async with slow.serve(kubeconfig), background(run(Configuration(Settings.read(environment)))):
        await until(place.names, web(*range(1, 8)))
    # On a busy machine, not all requests of a batch are there at the same time.
    assert 1 < slow.most <= most
