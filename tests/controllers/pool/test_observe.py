"""Pools that give their VMs' disks the same names: the older one has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from controllers.pool.actions import Create, Heal, Update
from controllers.pool.data_volumes import (
    CLAIM_SOURCE,
    DATA_VOLUME_SOURCE,
    DiskState,
    frees_name,
    is_left,
    parse_disk_state,
)
from controllers.pool.known_revisions import KnownRevisions
from controllers.pool.plan import plan
from controllers.pool.pools import Pool, parse_pool
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot, once
from controllers.pool.status import pool_status
from controllers.pool.stores import Stores
from controllers.shared.invalid_spec import InvalidSpec
from controllers.shared.vm import VM, RetainedDisk
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import PVCS, VMS
from tests.controllers.pool.builders import NOW, OLD, a_pool, document, leaving, retained, snapshot, template, vm, vmi
from tests.controllers.pool.stores import observe_pool, stored
from tests.controllers.pool.test_apply import play
from tests.histories.world import HERE, World

OLDER, YOUNGER = "2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z"


def with_data_volumes(stores: Stores, *states: DiskState) -> Stores:
    volumes = DATA_VOLUME_SOURCE.store()
    for each in states:
        volumes.put(each.key, each)
    return replace(stores, owned_disks=partial(volumes.by, "name"))


def left_disk(name: str) -> DiskState:
    return DiskState("Succeeded", left=True, key=("default", name))


Json = dict[str, Any]
WEB = replace(a_pool(1), created_at=YOUNGER)
OTHER = replace(a_pool(1), name="other", uid="u-other", created_at=OLDER)
DISKLESS = replace(a_pool(1, template=template(dataVolumeTemplates=[])), name="other", uid="u-other", created_at=OLDER)


@pytest.mark.parametrize(
    ("other", "made"),
    [
        pytest.param(OTHER, 0, id="an older pool has the disks, so nothing is created"),
        pytest.param(replace(OTHER, created_at="2026-02-03T00:00:00Z"), 1, id="a younger pool has to wait for us"),
        pytest.param(replace(OTHER, created_at=YOUNGER), 0, id="of the same second, the name decides"),
        pytest.param(replace(OTHER, namespace="elsewhere"), 1, id="another namespace has other disks"),
        pytest.param(DISKLESS, 1, id="a pool without disks shares none"),
    ],
)
def test_the_older_pool_has_the_disks(other: Pool, made: int) -> None:
    state = observe_pool(stored(WEB, other), WEB)
    assert sum(isinstance(each, Create) for each in plan(state, NOW).actions) == made
    assert (state.disk_conflict is not None) == (made == 0)


@pytest.mark.parametrize(("namespace", "counted"), [("default", 1), ("elsewhere", 0)])
def test_a_vm_of_another_namespace_cannot_join_a_pool_by_its_uid(namespace: str, counted: int) -> None:
    """A user of another namespace can write any UID as an owner. The pool would delete a VM of its own in excess."""
    state = observe_pool(stored(WEB, vm(1, namespace=namespace)), WEB)
    assert len(state.vms) == counted


@pytest.mark.parametrize(
    ("stranger", "made"),
    [
        pytest.param(vm("db", disks=("root-1",), owner_uid="", owner_name=""), "web-2", id="a lone VM has that disk"),
        pytest.param(vm("db", disks=("logs-1",), owner_uid="", owner_name=""), "web-1", id="a lone VM has another"),
        pytest.param(vm("db-1", disks=("root",), owner_uid="", owner_name=""), "web-1", id="a name without ordinal"),
    ],
)
@pytest.mark.sentence("1.56")
def test_an_ordinal_with_a_foreign_disk_is_skipped(stranger: VM, made: str) -> None:
    state = observe_pool(stored(WEB, stranger), WEB)
    assert [each.name for each in plan(state, NOW).actions if isinstance(each, Create)] == [made]


@pytest.mark.parametrize(
    ("holder", "volumes", "made"),
    [
        pytest.param(vm(3, disks=("root-1",)), (), "web-2", id="it lists the disk"),
        pytest.param(vm(3), ((3, "root-1"),), "web-2", id="it owns the disk, which its spec has no more"),
        pytest.param(vm("api-1", disks=("root-1",)), (), "web-2", id="a VM with another name than the pool's"),
        pytest.param(vm(3, disks=("logs-1",)), (), "web-1", id="a disk that the template does not name"),
        pytest.param(vm(3, disks=("root-0123456789-3",)), ((3, "root-3"),), "web-1", id="its own disks"),
        pytest.param(replace(retained(1), retained_for="web-3"), (), "web-2", id="it is retained for that VM"),
        pytest.param(retained(1), (), "web-1", id="the own disk is retained"),
    ],
)
def test_a_number_whose_disk_another_vm_of_the_pool_has_is_skipped(
    holder: VM | RetainedDisk, volumes: tuple[tuple[int, str], ...], made: str
) -> None:
    """A user has given it to that VM."""
    pool = replace(a_pool(2), created_at=YOUNGER)
    owners = (DiskState("Succeeded", key=("default", disk), vm=f"web-{of}", vm_uid=vm(of).uid) for of, disk in volumes)
    state = observe_pool(with_data_volumes(stored(pool, holder), *owners), pool)
    assert next(each.name for each in plan(state, NOW).actions if isinstance(each, Create)) == made
    assert state.shared_disks == {}


FORMER = replace(OLD, disks=(("old", "h"),))
"""the template of a pool before an update that renames the disk"""


def held_back(**proactive: Any) -> Pool:
    spec = {"updateStrategy": {"proactive": proactive}, "status": {"currentRevision": FORMER.name}}
    return replace(a_pool(2, **spec), created_at=YOUNGER)


@pytest.mark.parametrize(
    ("pool", "stranger", "made"),
    [
        pytest.param(held_back(partition=2), "old-1", ["web-2", "web-3"], id="the former name is another VM's"),
        pytest.param(held_back(partition=2), "root-2", ["web-1", "web-3"], id="the new name is another VM's"),
        pytest.param(held_back(partition=2), "logs-1", ["web-1", "web-2"], id="a name of neither template"),
        pytest.param(held_back(), "old-1", ["web-2", "web-3"], id="an abort would use it again"),
        pytest.param(replace(WEB, status=held_back().status), "old-1", ["web-2"], id="of an opportunistic update"),
        pytest.param(WEB, "old-1", ["web-1"], id="no VM gets the former template"),
    ],
)
def test_a_vm_with_the_former_template_gets_no_foreign_disk(pool: Pool, stranger: str, made: list[str]) -> None:
    lone = vm("db", disks=(stranger,), owner_uid="", owner_name="")
    state = observe_pool(stored(pool, FORMER, lone), pool)
    assert [each.name for each in plan(state, NOW).actions if isinstance(each, Create)] == made


@pytest.mark.parametrize(
    ("other", "stranger", "updated"),
    [
        pytest.param(OTHER, vm("other-2", disks=("root-2",), owner_uid="u-other"), [], id="an older pool's names"),
        pytest.param(
            replace(OTHER, created_at="2026-02-03T00:00:00Z"),
            vm("other-1", disks=("root-1",), owner_uid="u-other", owner_name="other"),
            [],
            id="the disk of a younger pool's VM",
        ),
        pytest.param(
            replace(OTHER, created_at="2026-02-03T00:00:00Z"),
            vm("other-2", disks=("root-2",), owner_uid="u-other", owner_name="other"),
            ["web-1"],
            id="a younger pool has that of another ordinal",
        ),
        pytest.param(
            DISKLESS, vm("db", disks=("root-1",), owner_uid="", owner_name=""), [], id="the disk of a lone VM"
        ),
        pytest.param(
            DISKLESS, vm("db", disks=("old-1",), owner_uid="", owner_name=""), ["web-1"], id="the disk that it had"
        ),
        pytest.param(DISKLESS, vm(3, disks=("root-1",)), [], id="the disk of another VM of the pool"),
    ],
)
@pytest.mark.parametrize("halted", [True, False])
def test_an_update_never_takes_a_foreign_disk(other: Pool, stranger: VM, updated: list[str], halted: bool) -> None:
    outdated = vm(1, disks=("old-1",), revision="web-r0", should_run=not halted, vmi_exists=not halted)
    state = observe_pool(stored(WEB, other, outdated, stranger), WEB)
    decided = plan(state, NOW)
    assert [each.name for each in decided.actions if isinstance(each, Update)] == updated
    assert [each.name for each in decided.waits] == [name for name in ["web-1"] if name not in updated]


def test_a_disk_that_the_vm_has_already_does_not_block_its_update() -> None:
    state = observe_pool(stored(WEB, OTHER, vm(1, revision="web-r0")), WEB)
    assert state.disk_conflict is not None
    assert [each.name for each in plan(state, NOW).actions if isinstance(each, Update)] == ["web-1"]


LONE = vm("db", disks=("root-1",), owner_uid="", owner_name="")
FAILING = vm(1, ready=False, start_failures=5, printable_status="CrashLoopBackOff")
HEALED = replace(a_pool(1, autohealing={}), created_at=YOUNGER)


@pytest.mark.parametrize(
    ("own", "stranger", "said"),
    [
        pytest.param(vm(1), LONE, "VM web-1 has disk root-1, which is VM db's", id="a VM made by hand"),
        pytest.param(
            vm(1),
            vm("other-1", disks=("root-1",), owner_uid="u-other", owner_name="other"),
            "VM web-1 has disk root-1, which is VM other-1's",
            id="a VM of another pool",
        ),
        pytest.param(vm(1), retained(1, by="u-gone"), "disk root-1, retained for VM web-1 of another pool", id="kept"),
        pytest.param(vm(2), LONE, "", id="the disk of another ordinal"),
        pytest.param(
            vm(1), vm(3, disks=("root-1",)), "VM web-1 has disk root-1, which is VM web-3's", id="a VM of the pool"
        ),
        pytest.param(leaving(1), LONE, "", id="one that leaves anyway"),
    ],
)
def test_the_condition_names_vms_that_share_a_disk(own: VM, stranger: VM | RetainedDisk, said: str) -> None:
    state = observe_pool(stored(WEB, own, stranger), WEB)
    told = {c.type: c for c in pool_status(state, plan(state, NOW), NOW).conditions}.get("DisksShared")
    assert (told.status if told else "False") == ("True" if said else "False")
    assert said in (told.message if told else "")


@pytest.mark.parametrize(
    ("left", "others", "expected"),
    [
        pytest.param((), (), "web-1", id="no disk is left"),
        pytest.param(("root-1",), (), "web-2", id="the disk of a VM that was deleted without it"),
        pytest.param(("root-1", "root-2"), (), "web-3", id="two of them"),
        pytest.param(("data-1", "root-x"), (), "web-1", id="disks that the template does not name"),
        pytest.param(("root-1",), (vm("db", disks=("root-1",), owner_uid=""),), "web-2", id="another VM uses it"),
    ],
)
def test_a_new_vm_gets_no_disk_that_another_has_left(
    left: tuple[str, ...], others: tuple[VM, ...], expected: str
) -> None:
    state = observe_pool(with_data_volumes(stored(WEB, *others), *map(left_disk, left)), WEB)
    assert [each.name for each in plan(state, NOW).actions if isinstance(each, Create)] == [expected]


def owned(vm: str, uid: str) -> Json:
    return {"vm": vm, "vm_uid": uid}


OTHERS = vm("other-1", uid="other", disks=("new-1",), owner_uid="u-other", owner_name="other")
"""an update has taken the disk root-1 out of its spec"""


@pytest.mark.parametrize(
    ("fields", "others", "made", "after_deletion"),
    [
        pytest.param(
            owned("other-1", "other"), (OTHERS,), "web-2", False, id="another pool's VM had it before an update"
        ),
        pytest.param(
            owned("db", "db"), (vm("db", uid="db", owner_uid="", owner_name=""),), "web-2", False, id="a lone VM had it"
        ),
        pytest.param(owned("other-1", "gone"), (OTHERS,), "web-2", False, id="an earlier VM of that name owned it"),
        pytest.param(owned("web-1", "gone"), (), "web-1", True, id="an earlier VM of our name owned it"),
        pytest.param(owned("web-3", "gone"), (), "web-1", True, id="an earlier VM of the pool owned it"),
        pytest.param({"kept_by": "u-other"}, (), "web-2", False, id="another pool retains it"),
        pytest.param({"kept_by": "u-web"}, (), "web-1", False, id="the pool retains it"),
        pytest.param({}, (OTHERS,), "web-1", False, id="it is no VM's"),
    ],
)
def test_a_new_vm_gets_no_disk_that_another_vm_owns(
    fields: Json, others: tuple[VM, ...], made: str, after_deletion: bool
) -> None:
    """`after_deletion`: its creation waits until the garbage collector has deleted the disk."""
    state = DiskState("Succeeded", key=("default", "root-1"), **fields)
    found = observe_pool(with_data_volumes(stored(WEB, *others), state), WEB)
    creates = [each for each in plan(found, NOW).actions if isinstance(each, Create)]
    assert [(each.name, each.after_deletion) for each in creates] == [(made, after_deletion)]


@pytest.mark.parametrize(
    ("owner", "uid", "labels", "made", "after_deletion"),
    [
        pytest.param("db", "u-db", {}, "web-2", False, id="another VM's, which has it no more in its spec"),
        pytest.param("other-1", "gone", {}, "web-2", False, id="of a VM of another pool that is gone"),
        pytest.param("web-1", "gone", {}, "web-1", True, id="of a VM of the pool that is gone"),
        pytest.param("", "", {}, "web-2", False, id="a deleted VM has left it"),
        pytest.param("", "", {meta.KEPT_BY: "u-web"}, "web-1", False, id="the pool retains it"),
        pytest.param("", "", {meta.KEPT_BY: "u-other"}, "web-2", False, id="another pool retains it"),
    ],
)
def test_a_claim_without_a_data_volume_belongs_to_its_vm(
    owner: str, uid: str, labels: Json, made: str, after_deletion: bool
) -> None:
    """CDI has collected the DataVolume."""

    async def scene(world: World, api: Api) -> None:
        web = replace(WEB, namespace=HERE)
        owners = [controller_reference(VMS.api_version, VMS.kind, owner, uid)] if owner else []
        metadata = {"name": "root-1", "namespace": HERE, "ownerReferences": owners}
        metadata["labels"] = {meta.KUBEVIRT_CREATED_BY: "u", **labels}
        await api.create(PVCS, {"apiVersion": "v1", "kind": PVCS.kind, "metadata": metadata})
        claims = await CLAIM_SOURCE.list(api, HERE)
        lone = vm("db", uid="u-db", owner_uid="", owner_name="", namespace=HERE)
        state = observe_pool(replace(stored(web, lone), owned_disks=partial(claims.by, "name")), web)
        creates = [each for each in plan(state, NOW).actions if isinstance(each, Create)]
        assert [(each.name, each.after_deletion) for each in creates] == [(made, after_deletion)]

    play(scene)


def test_disks_are_looked_for_before_a_creation_while_data_volumes_are_not_listed() -> None:
    state = observe_pool(replace(stored(WEB), lists_data_volumes=lambda: False), WEB)
    assert [each.after_deletion for each in plan(state, NOW).actions if isinstance(each, Create)] == [True]


def test_a_vm_keeps_a_disk_that_it_owns() -> None:
    own = DiskState("Succeeded", key=("default", "root-1"), vm="web-1", vm_uid=vm(1).uid)
    found = with_data_volumes(stored(WEB, vm(1, disks=("old-1",))), own)
    assert observe_pool(found, WEB).foreign_disks == {}


def test_a_vm_keeps_a_disk_whose_owner_is_lost() -> None:
    found = with_data_volumes(stored(WEB, vm(1)), left_disk("root-1"))
    assert observe_pool(found, WEB).foreign_disks == {}


OWNER = [{"kind": "VirtualMachine", "name": "web-1", "uid": "u"}]
MADE = {"kubevirt.io/created-by": "u"}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"labels": MADE}, True, id="made for a VM, without an owner"),
        pytest.param({"labels": MADE, "ownerReferences": OWNER}, False, id="a VM's"),
        pytest.param({"labels": {**MADE, "poolhouse.dev/kept-by": "u"}}, False, id="retained"),
        pytest.param({}, False, id="provided for a VM"),
    ],
)
def test_data_volumes_that_a_vm_has_left(metadata: Json, expected: bool) -> None:
    assert is_left(metadata) is expected
    named = {"name": "root-1", "namespace": "default", **metadata}
    found = parse_disk_state({"metadata": named})
    assert (found.left, found.key) == (expected, ("default", "root-1"))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        pytest.param(OTHER, "also pool other's", id="an older pool has its names, so it could not be made again"),
        pytest.param(LONE, "root-1, which is VM db's", id="another VM's disk would go with it"),
        pytest.param(DISKLESS, "", id="nobody shares anything"),
    ],
)
def test_a_failing_vm_with_a_disk_conflict_is_not_healed(other: Pool | VM, reason: str) -> None:
    decided = plan(observe_pool(stored(HEALED, FAILING, other), HEALED), NOW)
    assert [each.name for each in decided.actions if isinstance(each, Heal)] == ([] if reason else ["web-1"])
    assert [reason in each.reason for each in decided.waits] == ([True] if reason else [])


def test_the_message_names_the_other_owner_of_the_disk() -> None:
    state = observe_pool(stored(WEB, OTHER), WEB)
    assert state.disk_conflict.message.startswith("dataVolumeTemplate root is also pool other's")
    assert "give it another name" in state.disk_conflict.message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"replicas": "many"}, "spec.replicas: Input should be a valid integer", id="a word for a number"),
        pytest.param({"replicas": None}, "spec.replicas", id="no number at all"),
        pytest.param({"template": None}, "spec.template", id="no template", marks=pytest.mark.sentence("1.5")),
        pytest.param({"maxUnavailable": "ten"}, "spec.maxUnavailable: must be a whole number", id="a word for a limit"),
        pytest.param({"maxUnavailable": "x%"}, "spec.", id="a percentage of nothing"),
        pytest.param(
            {"scaleInStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "?"}}}}, "basePolicy", id="?"
        ),
    ],
)
def test_the_problem_of_an_invalid_spec(spec: Json, problem: str) -> None:
    found = parse_pool(document(**{"replicas": 3, **spec}))
    assert isinstance(found, InvalidSpec)
    assert problem in found.problem


def test_an_invalid_status_counts_as_empty() -> None:
    found = parse_pool(document(status={"replicas": "three"}))
    assert isinstance(found, Pool)
    assert found.status.replicas == 0


@pytest.mark.parametrize(
    ("limit", "replicas", "expected"),
    [
        pytest.param("25%", 8, 2, id="a quarter", marks=pytest.mark.sentence("1.8")),
        pytest.param("25%", 7, 1, id="rounded down"),
        pytest.param("25%", 3, 1, id="at least one"),
        pytest.param("100%", 0, 1, id="of nothing"),
        pytest.param(10, 3, 10, id="a number is a number"),
    ],
)
@pytest.mark.sentence("1.7")
def test_how_many_vms_may_be_unavailable(limit: int | str, replicas: int, expected: int) -> None:
    assert a_pool(replicas, maxUnavailable=limit).max_unavailable == expected


def test_a_question_is_answered_once_for_each_snapshot_and_time() -> None:
    asked = []

    @once
    def question(of: PoolSnapshot, now: datetime) -> int:
        asked.append((of, now))
        return len(of.vms)

    later, first = NOW + timedelta(seconds=1), snapshot(2, vm(1))
    assert [question(first, NOW), question(first, NOW), question(first, later)] == [1, 1, 1]
    changed = replace(first, vms=(vm(1), vm(2)))
    assert question(changed, NOW) == 2, "another snapshot has answers of its own"
    assert asked == [(first, NOW), (first, later), (changed, NOW)]


LABELLED = {"labels": {"poolhouse.dev/pool": "web"}}
NOBODY = {"owner_uid": "", "owner_kind": "", "owner_name": ""}


@pytest.mark.parametrize(
    ("found", "unowned"),
    [
        pytest.param(vm(1, **NOBODY, **LABELLED), True, id="of a backup, or detached"),
        pytest.param(vm(1, **LABELLED), False, id="of the pool"),
        pytest.param(vm(1, **NOBODY, labels={}), False, id="without the label"),
        pytest.param(vm(1, **NOBODY, labels={"poolhouse.dev/pool": "db"}), False, id="of another pool"),
        pytest.param(vm(1, **{**NOBODY, "owner_uid": "u"}, **LABELLED), False, id="of another owner"),
        pytest.param(vm(1, **NOBODY, **LABELLED, deleted_at="2026-01-01T00:00:00Z"), False, id="on its way out"),
    ],
)
def test_which_vms_with_the_name_and_label_of_a_pool_are_unowned(found: VM, unowned: bool) -> None:
    assert found.unowned == unowned
    status = pool_status(snapshot(1, vm(2), unowned=("web-1",) if unowned else ()), plan(snapshot(1), NOW), NOW)
    said = next((each for each in status.conditions if each.type == "UnownedVMs"), None)
    assert (said is not None) == unowned
    assert said is None or said.message.startswith("web-1: ")


@pytest.mark.parametrize(
    ("pool", "known"),
    [
        pytest.param(replace(WEB, resource_version="9", replicas_by="someone"), True, id="another version of it"),
        pytest.param(a_pool(7), True, id="the number of replicas is no part of the template"),
        pytest.param(a_pool(1, template=template(dataVolumeTemplates=[])), False, id="another template"),
        pytest.param(replace(WEB, uid="u-new"), False, id="a new pool of the same name"),
        pytest.param(replace(WEB, namespace="elsewhere"), False, id="another namespace"),
    ],
)
async def test_a_template_is_hashed_once(pool: Pool, known: bool) -> None:
    revisions, hashed = KnownRevisions(), list[Pool]()

    async def prepare(of: Pool) -> None:
        async def run(function: Callable[..., Revision], *arguments: Any) -> Revision:
            hashed.append(of)
            return function(*arguments)

        await revisions.prepare(of, run)

    await prepare(WEB)
    assert hashed == [WEB]
    await prepare(pool)
    assert (hashed == [WEB]) == known
    revisions.forget(pool.key)
    await prepare(pool)
    assert hashed[1:] == [pool] * (1 if known else 2)


@pytest.mark.parametrize(
    ("found", "of_vmi", "is_left_out"),
    [
        pytest.param(vm(1, **NOBODY, **LABELLED), {}, True, id="detached"),
        pytest.param(vm(1, **{**NOBODY, "owner_uid": "u"}, **LABELLED), {}, True, id="of another owner"),
        pytest.param(vm(1, **LABELLED), {}, False, id="of the pool"),
        pytest.param(vm(1, **NOBODY), {"labels": {}}, False, id="its Pod has no label"),
        pytest.param(vm(1, **NOBODY, **LABELLED), {"ready": False}, True, id="its Pod may get ready at any time"),
        pytest.param(vm(1, **LABELLED), {"owner_uid": "before"}, True, id="the VMI of an earlier VM"),
        pytest.param(vm(1), {"owner_uid": "before", "deleted_at": "2026-03-01T12:00:00Z"}, False, id="that is deleted"),
        pytest.param(vm("copy", **NOBODY, **LABELLED), {"name": "copy"}, True, id="a copy under another name"),
        pytest.param(vm(1, **LABELLED), {"name": "alone", "owner_uid": ""}, True, id="without a VM"),
    ],
)
def test_the_vmis_that_the_pools_budget_leaves_out(found: VM, of_vmi: Json, is_left_out: bool) -> None:
    given = stored(WEB, found)
    seen = replace(vmi("web-1", phase="Running", ready=True), **{"owner_uid": found.uid, **LABELLED, **of_vmi})
    given.vmis.put(seen.key, seen)
    assert given.foreign_vmis(WEB) == ((seen.uid,) if is_left_out else ())


MINE = DiskState("Succeeded", key=("default", "root-1"), vm="web-1", vm_uid="u")


@pytest.mark.parametrize(
    ("old", "new", "freed"),
    [
        pytest.param(None, MINE, False, id="it comes"),
        pytest.param(MINE, None, True, id="it goes"),
        pytest.param(MINE, MINE._replace(phase="Paused"), False, id="another phase"),
        pytest.param(MINE, MINE._replace(vm="", vm_uid=""), True, id="it loses its owner"),
        pytest.param(MINE, MINE._replace(vm_uid="new"), True, id="it was created again"),
        pytest.param(left_disk("root-1"), MINE._replace(vm="", vm_uid=""), True, id="it is no longer left by a VM"),
        pytest.param(MINE._replace(vm="", vm_uid=""), None, False, id="nobody's disk goes"),
    ],
)
def test_a_change_that_may_free_a_disks_name(old: DiskState | None, new: DiskState | None, freed: bool) -> None:
    assert frees_name(old, new) is freed


def test_a_vm_without_a_vmi_keeps_no_earlier_one() -> None:
    """A pool of 10,000 halted VMs would keep their last VMIs in memory."""
    found, member = stored(WEB), replace(vm(1), vmi=None)
    run = replace(vmi("web-1"), owner_uid=member.uid)
    found.vms.put(member.key, member)
    found.vmis.put(run.key, run)
    assert [each.vmi for each in found.vms_of(WEB)] == [run]
    found.vmis.drop(run.key)
    assert [each.vmi for each in found.vms_of(WEB)] == [None]
    assert not found._joined
