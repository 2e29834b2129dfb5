"""The replica set controller against the real API server: what is in the cluster in the end, whatever happened on the
way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from controllers.replicaset.observe import REPLICA_SETS
from defaulter.contract import undefaulted_fields
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.manifests.crd import crd
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CONFIG_MAPS, CRDS, VMIS
from poolhouse.stack.install import installable_kinds
from tests.cluster.pooling import Running, garbage_collector_knows, until
from tests.cluster.replicating import LABELS, V1ALPHA2, Place, controller, namespace, the_set
from tests.cluster.resting import rests
from tests.cluster.shell import Shell
from tests.kinds.documents import changed
from tests.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, QUOTAS
from tests.waiting import eventually
from tests.webhook.fake_defaulter import FakeDefaulter

Json = dict[str, Any]

ADMISSION = "admissionregistration.k8s.io"


@pytest_asyncio.fixture
async def place(control_plane: Any) -> AsyncIterator[Place]:
    async with namespace(control_plane.kubeconfig) as found:
        yield found


@pytest.mark.sentence("2.1")
async def test_a_replica_set_creates_its_vmis_and_then_writes_nothing(control_plane: Any, place: Place) -> None:
    made = await place.make(3)
    async with controller(control_plane.kubeconfig) as running:
        await until(place.count, 3)
        await place.runs(*await place.names())
        await until(place.numbers, (3, 3))
        for found in (await place.instances()).values():
            assert place.owner(found) == made["metadata"]["uid"]
            assert found["metadata"]["labels"] == LABELS
        status = (await place.seen())["status"]
        assert (status["labelSelector"], status["observedGeneration"]) == ("app=web", 1)
        assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [("Ready", "True", "Ready")]
        await rests(running.writes, 2)

        await scale(place, 5)
        await until(place.count, 5)
        await scale(place, 1)
        await until(place.count, 1)
        await place.hears("SuccessfulCreate", "SuccessfulDelete")
    (last,) = (await place.instances()).values()
    assert last["status"]["phase"] == "Running", "those that are not ready are the first to go"


@pytest.mark.sentence("2.4")
async def test_both_api_versions_show_the_same_set(control_plane: Any, place: Place) -> None:
    document = {**the_set(place.namespace, 1), "apiVersion": "kubevirt.io/v1alpha2"}
    named = changed(document, {"name": "test", "labels": LABELS}, "spec", "template", "metadata")
    await place.api.create(V1ALPHA2, named)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 1)
        (name,) = await place.names()
        assert name.startswith("test-"), "instances are named after their template, where it has a name"
        found = await place.api.get(V1ALPHA2, place.namespace, "web")
        assert found["apiVersion"] == "kubevirt.io/v1alpha2"
        await until(place.numbers, (1, 0))


@pytest.mark.sentence("2.12")
async def test_the_ones_that_are_not_ready_go_first_then_those_that_move_then_the_newest(
    control_plane: Any, place: Place
) -> None:
    async with controller(control_plane.kubeconfig):
        await place.make(2)
        await until(place.count, 2)
        old = await place.names()
        await asyncio.sleep(1)  # creation times are whole seconds
        await place.change(replicas=4)
        await until(place.count, 4)
        _, newest = sorted(await place.names() - old)
        moved, kept = sorted(old)
        await place.runs(moved, newest, kept)
        await place.runs(moved, migrationState={"startTimestamp": "2026-03-01T12:00:00Z"})
        await until(place.numbers, (4, 3))
        for replicas, left in ((3, {moved, newest, kept}), (2, {newest, kept}), (1, {kept})):
            await place.change(replicas=replicas)
            await until(place.names, left)


@pytest.mark.sentence("2.16")
async def test_a_set_adopts_orphans_and_leaves_the_vmis_of_other_controllers(control_plane: Any, place: Place) -> None:
    keeper = await place.api.create(CONFIG_MAPS, {"metadata": {"namespace": place.namespace, "name": "keeper"}})
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "keeper", "uid": keeper["metadata"]["uid"]}
    await place.vmi("orphan")
    await place.vmi("stranger", labels={"app": "db"})
    await place.vmi("theirs", ownerReferences=[{**theirs, "controller": True}])
    await place.vmi("shared", ownerReferences=[theirs])
    async with controller(control_plane.kubeconfig):
        made = await place.make(3)
        await until(lambda: owned(place, made), 3)
        found = await place.instances()
        uid = made["metadata"]["uid"]
        owners = {name: place.owner(each) for name, each in found.items()}
        assert len(found) == 5, "the orphans are two of the three"
        assert (owners["orphan"], owners["shared"], owners["stranger"]) == (uid, uid, None)
        assert owners["theirs"] == keeper["metadata"]["uid"]
        assert found["shared"]["metadata"]["ownerReferences"][0] == theirs, "what else it says stays"
        await place.change(replicas=0)
        await until(place.names, {"stranger", "theirs"})


@pytest.mark.sentence("2.14")
async def test_a_relabelled_vmi_is_released_replaced_and_adopted_again(control_plane: Any, place: Place) -> None:
    made = await place.make(2)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 2)
        await place.runs(*await place.names())
        debugged, kept = sorted(await place.names())
        await asyncio.sleep(1)  # creation times are whole seconds
        await place.relabel(debugged, app="debugged", **{"applyset.kubernetes.io/part-of": "shop"})
        await until(place.count, 3)
        await until(lambda: owned(place, made), 2)
        released = (await place.instances())[debugged]
        assert place.owner(released) is None
        assert not without_tracking_marks(released["metadata"])
        await place.runs(*await place.names())
        await until(place.numbers, (2, 2))
        await place.relabel(debugged, app="web")
        await until(place.count, 2)
        assert {debugged, kept} == await place.names(), "the newest goes for it"
        await until(lambda: owned(place, made), 2)


async def test_a_set_that_was_deleted_with_orphan_adopts_its_vmis_again(control_plane: Any, place: Place) -> None:
    first = await place.make(2)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 2)
        names = await place.names()
        await garbage_collector_knows(place.api, VMIS, place.namespace, max(names))
        await place.api.delete(REPLICA_SETS, place.namespace, "web", propagation="Orphan")
        await until(lambda: there(place), False)
        await until(lambda: owned(place, first), 0)
        assert await place.names() == names
    # A controller that has not heard of the orphans yet would make others first.
    async with controller(control_plane.kubeconfig):
        second = await place.make(2)
        await until(lambda: owned(place, second), 2)
        assert await place.names() == names


@pytest.mark.sentence("2.15")
async def test_a_deleted_set_takes_its_vmis_with_it(control_plane: Any, place: Place) -> None:
    await place.make(2)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 2)
        await place.api.delete(REPLICA_SETS, place.namespace, "web", propagation="Foreground")
        await until(place.count, 0)
        await until(lambda: there(place), False)


async def test_a_paused_set_counts_and_does_nothing(control_plane: Any, place: Place) -> None:
    await place.make(2)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 2)
        await place.change(paused=True)
        await until(lambda: place.condition("ReplicaPaused"), ("True", "Paused"))
        await place.change(replicas=4)
        gone, stays = sorted(await place.names())
        await place.api.delete(VMIS, place.namespace, gone)
        await until(place.numbers, (1, 0))
        await asyncio.sleep(1)
        assert await place.names() == {stays}
        await place.change(paused=False)
        await until(place.count, 4)
        await until(lambda: place.condition("ReplicaPaused"), None)
        await place.hears("SuccessfulCreate", "SuccessfulPaused", "SuccessfulResumed")


@pytest.mark.sentence("2.9")
async def test_a_set_has_replica_failure_while_its_quota_is_full(control_plane: Any, place: Place) -> None:
    hard = {"count/virtualmachineinstances.kubevirt.io": "2"}
    await place.api.create(QUOTAS, {"metadata": {"namespace": place.namespace, "name": "few"}, "spec": {"hard": hard}})
    # On a control plane that has just started, its quotas know instances only after their next look at what there is.
    await until(lambda: counted(place), True)
    await place.make(4)
    async with controller(control_plane.kubeconfig):
        await until(lambda: place.condition("ReplicaFailure"), ("True", "FailureCreate"))
        await until(place.numbers, (2, 0))
        # Before, it may say that the quota is not known yet.
        await until(lambda: said(place, "exceeded quota: few"), True)
        await place.hears("SuccessfulCreate", "FailedCreate")
        await place.api.delete(QUOTAS, place.namespace, "few")
        await until(place.count, 4)
        await until(lambda: place.condition("ReplicaFailure"), None)


@pytest.mark.sentence("2.8")
async def test_replica_failure_has_the_message_of_the_refused_deletion(control_plane: Any, place: Place) -> None:
    async with controller(control_plane.kubeconfig):
        await place.make(2)
        await until(place.count, 2)
        await forbid_deletion(place, "nobody deletes here")
        try:
            await place.change(replicas=1)
            await until(lambda: place.condition("ReplicaFailure"), ("True", "FailureDelete"))
            await until(lambda: said(place, "nobody deletes here"), True)
            assert await place.numbers() == (2, 0)
        finally:
            await place.api.delete(ADMISSION_POLICY_BINDINGS, None, place.namespace)
            await place.api.delete(ADMISSION_POLICIES, None, place.namespace)
        await until(place.count, 1)
        await until(lambda: place.condition("ReplicaFailure"), None)


async def test_ended_vmis_are_deleted_and_replaced_after_a_growing_pause(control_plane: Any, place: Place) -> None:
    await place.make(1)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 1)
        (first,) = await place.names()
        await place.ends(first)
        await until(lambda: replaced(place, first), True)
        (second,) = await place.instances()
        await place.ends(second, ran=1)
        await until(lambda: replaced(place, second), True)
        (third,) = (await place.instances()).values()
        assert third["metadata"]["annotations"] == {meta.ATTEMPT: "1"}
        # The pause after so many attempts is longer than any test.
        later = {"metadata": {"annotations": {meta.ATTEMPT: "9"}}}
        await place.api.patch(VMIS, place.namespace, third["metadata"]["name"], later)
        await place.ends(third["metadata"]["name"], ran=1)
        await until(lambda: place.condition("ReplicaFailure"), ("True", "FailureStart"))
        assert await place.names() == {third["metadata"]["name"]}, "it stays to be looked at"
        await place.change(replicas=0)
        await until(place.count, 0)
        await until(lambda: place.condition("ReplicaFailure"), None)


@pytest.mark.sentence("2.10")
async def test_a_vmi_that_takes_long_to_end_is_replaced_at_once(control_plane: Any, place: Place) -> None:
    await place.make(1)
    async with controller(control_plane.kubeconfig):
        await until(place.count, 1)
        (slow,) = await place.names()
        await place.api.patch(VMIS, place.namespace, slow, {"metadata": {"finalizers": ["example.com/graceful"]}})
        await place.api.delete(VMIS, place.namespace, slow)
        await until(place.count, 2)
        await until(lambda: terminating(place), (1, 1))
        await place.api.patch(VMIS, place.namespace, slow, {"metadata": {"finalizers": None}})
        await until(place.count, 1)


async def test_instances_are_made_complete_while_no_webhook_completes_them(control_plane: Any, place: Place) -> None:
    async with controller(control_plane.kubeconfig, defaulter=FakeDefaulter()):
        await place.make(3)
        await until(place.count, 3)
    made = (await place.instances()).values()
    assert all(undefaulted_fields(each) == [] for each in made)
    identities = {each["spec"]["domain"]["firmware"]["uuid"] for each in made}
    assert len(identities) == 3, "each has an identity of its own"


async def test_where_the_resource_is_kubevirts_nothing_is_done_until_it_is_ours(
    control_plane: Any, place: Place
) -> None:
    """A definition that somebody else's installer has taken over."""
    await relabel(place, {meta.PART_OF: "kubevirt", meta.MANAGED_BY: "virt-operator"})
    try:
        assert REPLICA_SET not in await installable_kinds(place.api)
        await place.make(1)
        async with controller(control_plane.kubeconfig, poll_seconds=0.2) as running:
            await looks(running, 3)
            assert await place.count() == 0
            await relabel(place, {meta.PART_OF: meta.POOLHOUSE, meta.MANAGED_BY: None})
            await until(place.count, 1)
            await relabel(place, {meta.MANAGED_BY: "virt-operator"})
            await looks(
                running, 3
            )  # one may be on its way, one tells, and the next is after what was at work has ended
            await place.change(replicas=2)
            await asyncio.sleep(1)
            assert await place.count() == 1
    finally:
        await place.api.patch(CRDS, None, REPLICA_SET.crd_name, {"metadata": {"labels": {meta.MANAGED_BY: None}}})
        await relabel(place, crd(REPLICA_SET)["metadata"]["labels"])


async def test_plan_names_the_vmi_that_it_would_delete_and_why_has_its_creation(
    control_plane: Any, place: Place
) -> None:
    run = Shell(place, control_plane.kubeconfig).run
    async with controller(control_plane.kubeconfig):
        await place.make(2)
        await until(place.count, 2)
        ready, waits = sorted(await place.names())
        await place.runs(ready)
        await until(place.numbers, (2, 1))
        told = (await run("plan", "-f", "-", document=the_set(place.namespace, 1))).stdout
        assert re.search(f"Delete +{waits} +2 exist, 1 is wanted", told), told
        assert "web: no actions" in (await run("plan", "vmirs/web")).stdout

        async def told_of_its_making() -> bool | str:
            told = (await run("why", ready)).stdout
            assert told.startswith(f"{ready} is in web\n  now   it is ready\n")
            return "SuccessfulCreate: created" in told or told

        await until(told_of_its_making, True)  # events are written later than what they tell of


async def scale(place: Place, replicas: int) -> None:
    """As `kubectl scale` does it."""
    found = await place.api.patch(
        REPLICA_SETS, place.namespace, "web", {"spec": {"replicas": replicas}}, subresource="scale"
    )
    assert found["kind"] == "Scale"
    assert found["status"]["selector"] == "app=web"


async def looks(running: Running, often: int) -> None:
    """Waits until the controller has asked so often more whose the definition is."""

    def so_far() -> float:
        return running.requests("get", CRDS.plural)

    wanted = so_far() + often
    await eventually(lambda: asyncio.sleep(0, so_far() >= wanted))


async def said(place: Place, word: str) -> bool | str:
    """Whether the word is in what the set says of its failures, or what is there instead."""
    message = await place.message("ReplicaFailure")
    return word in message or message


async def terminating(place: Place) -> tuple[int, int]:
    """How many instances the set says to have, and how many of it are being deleted."""
    status = (await place.seen()).get("status") or {}
    return status.get("replicas", 0), status.get("terminatingReplicas", 0)


async def owned(place: Place, by: Json) -> int:
    return sum(place.owner(each) == by["metadata"]["uid"] for each in (await place.instances()).values())


async def there(place: Place) -> bool:
    try:
        await place.seen()
    except NotFound:
        return False
    return True


async def replaced(place: Place, name: str) -> bool:
    """By one other, which has not ended."""
    found = await place.instances()
    return len(found) == 1 and name not in found


async def counted(place: Place) -> bool:
    """The quota has been reckoned: until then it refuses everything."""
    return bool((await place.api.get(QUOTAS, place.namespace, "few")).get("status", {}).get("used"))


async def forbid_deletion(place: Place, why: str) -> None:
    rule = {"apiGroups": ["kubevirt.io"], "apiVersions": ["v1"], "operations": ["DELETE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
    constraints = {"resourceRules": [{**rule, "resources": [VMIS.plural]}], "namespaceSelector": here}
    validation = {"expression": "false", "message": why}
    spec: Json = {"matchConstraints": constraints, "validations": [validation]}
    await place.api.create(ADMISSION_POLICIES, {"metadata": {"name": place.namespace}, "spec": spec})
    spec = {"policyName": place.namespace, "validationActions": ["Deny"]}
    await place.api.create(ADMISSION_POLICY_BINDINGS, {"metadata": {"name": place.namespace}, "spec": spec})
    name = min(await place.names())

    async def refused() -> bool:
        try:
            path = VMIS.path(place.namespace, name)
            await place.api.request("DELETE", path, query={"dryRun": "All"})
        except ApiError as error:
            return why in error.message
        return False

    await until(refused, True)


async def relabel(place: Place, labels: Json) -> None:
    await place.api.patch(CRDS, None, REPLICA_SET.crd_name, {"metadata": {"labels": labels}})
