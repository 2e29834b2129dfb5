"""Instance types of a pool: which change of one KubeVirt applies to running VMs, and which restarts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.plan import plan
from controllers.pool.revisions import Revision, parse_revision
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM, matchers_of
from poolhouse.api.kinds.resource_types import POOLS
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_updates import LiveFields, RunningGuest
from poolhouse.runtime.resource import CONTROLLER_REVISIONS
from tests.builders import manifest, owned_by
from tests.controllers.pool.builders import NOW, a_pool, ago, snapshot, template, vm, vmi

Json = dict[str, Any]

GIB = 1 << 30
CLUSTER = ClusterSettings(versions=("v1.9.0",), update_methods=frozenset({"LiveMigrate"}))
CORES = {"cpu": {"preferredCPUTopology": "cores"}}


def sized(cpus: int, memory: str = "1Gi", **more: Any) -> Json:
    return {"cpu": {"guest": cpus}, "memory": {"guest": memory}, **more}


CATALOGUE: Json = {
    "small": sized(1),
    "large": sized(2, "2Gi"),
    "twin": sized(1),
    "gpu": sized(1, gpus=[{"name": "g", "deviceName": "nvidia.com/a100"}]),
    "fast": sized(1, nodeSelector={"disk": "ssd"}),
    "overcommitted": {"cpu": {"guest": 1}, "memory": {"guest": "2Gi", "overcommitPercent": 50}},
    "small-7": sized(4, "1Gi"),
}


async def catalogue(document: Json, namespace: str) -> Json:
    """As the reader of the API server answers, with revisions by their names."""
    named = document["spec"]["instancetype"]
    name = named.get("revisionName") or named["name"]
    if name not in CATALOGUE:
        return {"unread": f"the VirtualMachineClusterInstancetype {name} cannot be read: forbidden"}
    found = {"instancetype": CATALOGUE[name]}
    return found if document["spec"]["preference"] is None else {**found, "preference": CORES}


def revision(number: int, instancetype: Json | None, **spec: Any) -> Revision:
    """A stored revision whose template names an instance type."""
    found = template(**({"instancetype": instancetype} if instancetype else {}), **spec)
    if instancetype:
        found["spec"]["template"]["spec"]["domain"].pop("memory", None)
    owners = owned_by(POOLS, "web", "u-web")
    stored = manifest(CONTROLLER_REVISIONS, f"web-r{number}", None, "default", ownerReferences=owners)
    return parse_revision({**stored, "revision": number, "data": {"template": found, "nameGeneration": {}}})


def guest(sockets: int = 1, gib: int = 1, *, shown: int | None = None, placement: str = "") -> RunningGuest:
    spec = LiveFields(sockets, gib * GIB, placement)
    has = replace(spec, sockets=shown or sockets)
    return RunningGuest(spec, has, "amd64", max_sockets=4, max_memory=4 * GIB, boot_memory=GIB)


ONE = guest()


def running(has: Revision, started_from: Revision, shows: RunningGuest = ONE, **given: Any) -> VM:
    started = vmi("web-1", revision=started_from.label, guest=shows, phase="Running", node="node-1")
    facts = {"live": has.live, "matchers": has.matchers, **given}
    return vm(1, revision=has.label, vmi=started, live_update_since=ago(1) if has != started_from else "", **facts)


async def observed(
    was: Revision, wanted: Revision, it: VM, known: KnownInstancetypes | None = None, choice: str = "Prefer"
) -> PoolSnapshot:
    pool = a_pool(1, maxUnavailable=1, updateStrategy={"proactive": {"liveUpdate": choice}})
    found = snapshot(pool, it, cluster=CLUSTER, revision=wanted, revisions=(was, wanted))
    if known is None:
        return await KnownInstancetypes(catalogue).complete(found)
    await known.read(found)
    return known.expanded(found)


def reasons(of: PoolSnapshot) -> dict[str, str]:
    return {each.verb: each.reason for each in plan(of, NOW).actions}


NAMED = {"name": "small"}
LIVE = "KubeVirt changes the running VM by a live migration: "


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            NAMED, {"name": "large"}, f"{LIVE}CPU sockets 1 to 2, memory 1Gi to 2Gi", id="another instance type"
        ),
        pytest.param(
            {"name": "small"},
            {"name": "small", "revisionName": "small-7"},
            f"{LIVE}CPU sockets 1 to 4",
            id="another revision of the same one",
        ),
        pytest.param(
            NAMED, {"name": "fast"}, "KubeVirt changes the running VM without a migration: placement", id="placement"
        ),
        pytest.param(NAMED, {"name": "twin"}, "the change needs no restart", id="another name of the same fields"),
        pytest.param(NAMED, {"name": "gpu"}, "the template has changed", id="a GPU restarts"),
        pytest.param(NAMED, {"name": "overcommitted"}, "the template has changed", id="overcommit requests less"),
        pytest.param(
            NAMED,
            {"name": "secret"},
            "the template has changed",
            id="one that cannot be read restarts",
        ),
    ],
)
async def test_a_change_of_the_instance_type(before: Json, after: Json, expected: str) -> None:
    was, wanted = revision(1, before), revision(2, after)
    assert reasons(await observed(was, wanted, running(was, was)))["Update"] == expected


async def test_a_restart_says_that_the_instance_type_cannot_be_read() -> None:
    found = simulate(await observed(SMALL, revision(2, {"name": "secret"}), running(SMALL, SMALL)), NOW)
    restart = next(each for step in found.steps for each in step.actions if each.verb == "Restart")
    unread = "the VirtualMachineClusterInstancetype secret cannot be read: forbidden"
    assert restart.reason == f"the template has changed; {unread}"


async def test_a_preference_that_makes_cores_of_the_cpus_restarts_and_so_does_another_preference() -> None:
    linux = {"preference": {"name": "linux"}}
    was, wanted = revision(1, {"name": "small-7"}, **linux), revision(2, {"name": "large"}, **linux)
    found = await observed(was, wanted, running(was, was, guest(1)))
    assert reasons(found)["Update"] == "the template has changed"
    plain = revision(1, NAMED)
    found = await observed(plain, revision(2, NAMED, **linux), running(plain, plain))
    assert reasons(found)["Update"] == "the template has changed"


async def test_other_fields_of_a_template_with_an_instance_type_are_live_too() -> None:
    was, wanted = revision(1, NAMED), revision(2, NAMED)
    placed = template(instancetype=NAMED)
    inner = placed["spec"]["template"]["spec"]
    inner["domain"].pop("memory", None)
    inner["tolerations"] = [{"key": "batch", "operator": "Exists"}]
    document = {"metadata": {"name": wanted.name, "namespace": "default"}, "revision": 2}
    wanted = parse_revision({**document, "data": {"template": placed, "nameGeneration": {}}})
    assert "without a migration: placement" in reasons(await observed(was, wanted, running(was, was)))["Update"]


SMALL, LARGE = revision(1, NAMED), revision(2, {"name": "large"})


@pytest.mark.parametrize(
    ("it", "expected"),
    [
        pytest.param(running(LARGE, SMALL), {}, id="it waits for KubeVirt"),
        pytest.param(running(LARGE, SMALL, guest(2, 2, shown=1)), {}, id="it waits for the migration"),
        pytest.param(
            running(LARGE, SMALL, guest(2, 2)), {"LabelVMI": "the change needs no restart"}, id="the guest has it"
        ),
        pytest.param(running(LARGE, LARGE, guest(2, 2)), {}, id="the update is done"),
        pytest.param(
            running(LARGE, SMALL, restart_required="more memory than available"),
            {
                "Restart": "the template has changed; KubeVirt says RestartRequired: more memory than available",
            },
            id="KubeVirt decides",
        ),
    ],
)
async def test_the_pool_follows_what_kubevirt_makes_of_it(it: VM, expected: dict[str, str]) -> None:
    assert reasons(await observed(SMALL, LARGE, it)) == expected


async def test_require_waits_with_the_reason_while_the_instance_type_is_unknown() -> None:
    wanted = revision(2, {"name": "secret"})
    found = await observed(SMALL, wanted, running(SMALL, SMALL), choice="Require")
    assert "secret cannot be read: forbidden" in plan(found, NOW).waits[0].reason


async def test_the_former_instance_type_may_be_deleted_while_vms_move() -> None:
    known = KnownInstancetypes(catalogue)
    await observed(SMALL, LARGE, running(SMALL, SMALL), known)

    async def gone(document: Json, namespace: str) -> Json:
        deleted = document["spec"]["instancetype"]["name"] == "small"
        return {"unread": "it does not exist"} if deleted else await catalogue(document, namespace)

    known.read_specs = gone
    assert reasons(await observed(SMALL, LARGE, running(LARGE, SMALL, guest(2, 2, shown=1)), known)) == {}
    fresh = await observed(SMALL, LARGE, running(LARGE, SMALL, guest(2, 2, shown=1)), KnownInstancetypes(gone))
    assert reasons(fresh)["Restart"] == "the template has changed; it does not exist", "nobody knows what it gave"


async def test_the_names_that_kubevirt_infers_from_a_volume_are_those_of_the_vms() -> None:
    inferred, known = revision(3, {"inferFromVolume": "root"}), KnownInstancetypes(catalogue)
    stored = matchers_of({"instancetype": {"name": "small", "kind": "VirtualMachineClusterInstancetype"}})
    found = await observed(inferred, LARGE, running(inferred, inferred, matchers=stored), known)
    assert reasons(found)["Update"] == f"{LIVE}CPU sockets 1 to 2, memory 1Gi to 2Gi"
    moving = running(LARGE, inferred, guest(2, 2, shown=1))
    assert reasons(await observed(inferred, LARGE, moving, known)) == {}, "no VM has the former template now"
    found = await observed(SMALL, inferred, running(SMALL, SMALL))
    assert reasons(found)["Update"] == "the template has changed"


async def test_an_edited_instance_type_changes_no_vm_that_names_it() -> None:
    """KubeVirt keeps what the VM had at its start, in a ControllerRevision."""
    it = replace(running(LARGE, LARGE, guest(1, 1)), live_update_since=ago(1))
    other = replace(running(SMALL, SMALL), name="web-2", uid="u-2")
    pool = a_pool(2, updateStrategy={"proactive": {}})
    found = snapshot(pool, it, other, cluster=CLUSTER, revision=LARGE, revisions=(SMALL, LARGE))
    found = await KnownInstancetypes(catalogue).complete(found)
    assert [each.name for each in plan(found, NOW).actions if each.verb == "Update"] == ["web-2"]
    assert [each.name for each in plan(found, NOW).actions if each.verb == "Restart"] == []


async def test_the_simulation_ends_without_a_restart() -> None:
    found = simulate(await observed(SMALL, LARGE, running(SMALL, SMALL)), NOW)
    assert found.complete
    assert [each.verb for step in found.steps for each in step.actions] == ["Update"]


async def test_nothing_is_read_while_all_vms_have_one_revision_and_for_a_strategy_that_restarts() -> None:
    async def unexpected(document: Json, namespace: str) -> Json:
        raise AssertionError("nothing must be read")

    known = KnownInstancetypes(unexpected)
    await observed(SMALL, LARGE, running(LARGE, LARGE, guest(2, 2)), known)
    await observed(SMALL, LARGE, running(SMALL, SMALL), known, choice="Never")


async def test_a_pool_keeps_what_its_revisions_need() -> None:
    known, fresh = KnownInstancetypes(catalogue), KnownInstancetypes(catalogue)
    inferred = revision(3, {"inferFromVolume": "root"})
    await observed(inferred, LARGE, running(inferred, inferred, matchers=matchers_of({"instancetype": NAMED})), known)
    for each in (known, fresh):
        await observed(LARGE, SMALL, running(LARGE, LARGE), each)
    assert known == fresh != KnownInstancetypes(catalogue)
    await observed(LARGE, SMALL, running(SMALL, SMALL), known)
    assert known == KnownInstancetypes(catalogue), "all VMs have one revision"


async def test_a_plan_of_somebody_is_not_remembered() -> None:
    """The pool of a dry run may have any name, and may not exist."""
    known = KnownInstancetypes(catalogue)
    found = snapshot(a_pool(1), running(SMALL, SMALL), cluster=CLUSTER, revision=LARGE, revisions=(SMALL, LARGE))
    assert (await known.complete(found)).unread == {}
    assert known == KnownInstancetypes(catalogue)
