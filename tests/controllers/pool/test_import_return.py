"""The way back from a completed import, as a pure plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.import_plan import plan
from controllers.pool.import_return import give_back, is_imported
from controllers.pool.import_return_check import NOTES, check_return
from controllers.pool.import_steps import (
    CannotImport,
    Observed,
    Wait,
    Write,
    record_name,
    return_record_name,
)
from controllers.pool.import_take_back import take_back
from controllers.pool.kubevirt_pools import FINALIZER, KUBEVIRT_POOLS, REVISION_LABEL, convert
from controllers.pool.pools import POOLS, Pool, parse_pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import new_revision
from controllers.pool.template import build_revision, build_vm
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, PVCS, VMIS, VMS
from tests.builders import manifest, owned_by

Json = dict[str, Any]
OLD, OURS, THEIRS = "uid-of-the-imported", "uid-of-poolhouse", "uid-of-the-new"


def template(memory: str = "64Mi", **spec: Any) -> Json:
    disks = [{"metadata": {"name": "root"}, "spec": {}}]
    vmi = {"spec": {"domain": {"memory": {"guest": memory}}}}
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"running": True, "dataVolumeTemplates": disks, "template": vmi, **spec},
    }


def kept_spec(**others: Any) -> Json:
    return {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": template(),
        "autohealing": {},
        **others,
    }


def poolhouse_pool(spec: Json, **metadata: Any) -> Json:
    found = manifest(POOLS, "web", spec, "default", uid=OURS, generation=3, resourceVersion="5", **metadata)
    conditions = [{"type": "Paused", "status": "True"}] if spec.get("paused") else []
    return {**found, "status": {"observedGeneration": 3, "conditions": conditions}}


def parsed(target: Json) -> Pool:
    found = parse_pool(target)
    assert isinstance(found, Pool)
    return found


def revision_of(target: Json) -> Json:
    pool = parsed(target)
    return build_revision(pool, replace(new_revision("web", OURS, content(pool.spec), "default"), number=1))


def member(target: Json, ordinal: int) -> Json:
    pool = parsed(target)
    vm = build_vm(pool, ordinal, new_revision("web", OURS, content(pool.spec), "default"))
    vm["metadata"] |= {"uid": f"uid-{ordinal}", "resourceVersion": "7"}
    return vm


def vmi(vm: Json) -> Json:
    labels = vm["spec"]["template"]["metadata"]["labels"]
    return manifest(VMIS, vm["metadata"]["name"], {}, uid=f"vmi-{vm['metadata']['name']}", labels=dict(labels))


def claim(name: str, **labels: str) -> Json:
    return manifest(PVCS, name, {}, uid=f"uid-{name}", resourceVersion="9", labels={meta.KEPT_BY: OURS, **labels})


def imported(kept: Json | None = None, **changes: Any) -> Observed:
    """The state after an import of a pool with two VMs, of which one runs. `changes` are those of our pool's spec."""
    kept = kept or kept_spec()
    data = {"drops": [], "metadata": {"labels": {"team": "shop"}}, "revisions": {}, "spec": kept, "uid": OLD}
    owner = {"kind": "VirtualMachinePool", "name": "web", "uid": OURS}
    record = {
        "metadata": {"name": record_name("web"), "uid": "uid-of-the-record", "ownerReferences": [owner]},
        "revision": 0,
        "data": data,
    }
    target = poolhouse_pool({**convert({"spec": kept}).spec, **changes})
    vms = (member(target, 0), member(target, 1))
    revisions = (record, revision_of(target))
    return Observed("default", "web", None, target, revisions, vms, (vmi(vms[0]),), (), "v1beta1")


def problems(observed: Observed, *drops: str) -> tuple[str, ...]:
    try:
        check_return(observed, drops)
    except CannotImport as error:
        return error.problems
    return ()


def changed(observed: Observed, change: Callable[[Json], Any], ordinal: int = 0) -> Observed:
    """With one VM changed."""
    vms = copy.deepcopy(observed.vms)
    change(vms[ordinal])
    return replace(observed, vms=vms)


def older(observed: Observed, kept: Json) -> Observed:
    """With a first VM, and its VMI, of an older template."""
    before = imported(kept, template=template("32Mi", runStrategy="Always", running=None))
    vms, vmis = (before.vms[0], observed.vms[1]), before.vmis
    return replace(observed, vms=vms, vmis=vmis, revisions=(*observed.revisions, before.revisions[1]))


OPPORTUNISTIC = kept_spec(updateStrategy={"opportunistic": {}})
UNMANAGED = kept_spec(updateStrategy={"unmanaged": {}})


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(imported(), [], id="nothing has changed"),
        pytest.param(imported(replicas=3), [], id="other replicas"),
        pytest.param(imported(template=template("128Mi")), [], id="another template"),
        pytest.param(older(imported(UNMANAGED), UNMANAGED), [], id="KubeVirt does not update VMs"),
        pytest.param(older(imported(OPPORTUNISTIC), OPPORTUNISTIC), [], id="KubeVirt does not restart VMs"),
        pytest.param(replace(imported(), served=""), ["does not have KubeVirt's pools"], id="no kind of KubeVirt"),
        pytest.param(
            replace(imported(), source=manifest(KUBEVIRT_POOLS, "web", {}, uid="another")),
            ["KubeVirt has a pool web"],
            id="another pool of KubeVirt",
        ),
        pytest.param(
            imported(maxUnavailable=1, autohealing={"startupFailureThreshold": 9}),
            ["spec.autohealing: it has changed", "spec.maxUnavailable: it has changed"],
            id="fields that have changed",
        ),
        pytest.param(
            imported(template={**template(), "metadata": {"labels": {"app": "shop"}}}),
            [
                "spec.template.metadata.labels",
                "VM web-0: the selector of KubeVirt's pool does not match",
                "VM web-1: the selector of KubeVirt's pool does not match",
            ],
            id="labels that KubeVirt's selector does not match",
        ),
        pytest.param(imported(replicas=1), ["1 more VMs than replicas"], id="a scale-in has begun"),
        pytest.param(older(imported(), kept_spec()), ["VM web-0: KubeVirt would restart it"], id="an update has begun"),
        pytest.param(
            older(imported({**OPPORTUNISTIC, "virtualMachineTemplate": template(running=False)}), OPPORTUNISTIC),
            ["VM web-0: KubeVirt would change its run strategy from Always to Halted"],
            id="an update would stop the VM",
        ),
        pytest.param(
            changed(imported(), lambda vm: vm["metadata"]["labels"].pop(meta.REVISION)),
            ["VM web-0: no stored revision belongs to its label poolhouse.dev/revision"],
            id="a VM without revision",
        ),
        pytest.param(
            replace(imported(), vmis=(manifest(VMIS, "web-0", {}, uid="1", labels={"app": "web"}),)),
            ["VMI web-0: no stored revision belongs to its label poolhouse.dev/revision"],
            id="a VMI without revision",
        ),
        pytest.param(
            changed(imported(), lambda vm: vm["metadata"].update(deletionTimestamp="now")),
            ["VM web-0: it is being deleted"],
            id="a VM that is being deleted",
        ),
        pytest.param(
            changed(imported(), lambda vm: vm["metadata"]["labels"].update({meta.TRANSITION: "Restarting"})),
            ["VM web-0: it waits for lifecycle hooks"],
            id="a VM that hooks hold",
        ),
        pytest.param(
            changed(imported(), lambda vm: vm["metadata"].update(name="shop-0"), 1),
            [
                "VM shop-0: the name does not match web-NUMBER",
                "VM shop-0: KubeVirt's next update would give it another disk than root-1",
            ],
            id="a VM with another name",
        ),
        pytest.param(
            changed(imported(), lambda vm: vm["spec"]["dataVolumeTemplates"][0]["metadata"].update(name="root-0-x")),
            ["VM web-0: KubeVirt's next update would give it another disk than root-0-x"],
            id="a VM whose disk was replaced",
        ),
        pytest.param(
            replace(imported(), claims=(claim("root-1", **{meta.KEPT_FOR: "web-1"}),)),
            ["disk root-1: web-1 has not got it back yet"],
            id="a disk that is about to return",
        ),
        pytest.param(
            replace(imported(), claims=(claim("root-7", **{meta.KEPT_FOR: "web-7", meta.REPLACED: "true"}),)),
            ["disk root-7: an update has replaced it"],
            id="a disk that was replaced, and that KubeVirt would use",
        ),
    ],
)
def test_all_that_stops_the_way_back_is_said_at_once(observed: Observed, expected: list[str]) -> None:
    found = problems(observed)
    assert [each for each, wanted in zip(found, expected, strict=True) if wanted not in each] == []


def test_a_change_of_a_field_that_kubevirt_lacks_can_be_lost() -> None:
    observed = imported(retainedDisks={"ttlSeconds": 600}, maxUnavailable=1)
    assert len(problems(observed)) == 2
    assert len(problems(observed, "retainedDisks")) == 1
    assert problems(observed, "retainedDisks", "maxUnavailable") == ()
    assert "--drop paused: no field" in problems(imported(), "paused")[0]
    found = check_return(observed, ("retainedDisks", "maxUnavailable"))
    assert found.data["spec"] == kept_spec()
    assert [each.path for each in found.changes] == ["spec.maxUnavailable", "spec.retainedDisks"]


@pytest.mark.parametrize(
    ("observed", "spec", "changes", "notes"),
    [
        pytest.param(imported(), kept_spec(), [], [], id="the same spec"),
        pytest.param(
            imported(replicas=5), kept_spec(replicas=5), ["spec.replicas: 2 -> spec.replicas: 5 (as it is now)"], []
        ),
        pytest.param(
            imported(paused=True),
            kept_spec(paused=True),
            ["spec.paused: not set -> spec.paused: true (as it is now)"],
            [],
            id="a paused pool stays paused",
        ),
        pytest.param(
            imported(template=template("128Mi")),
            kept_spec(virtualMachineTemplate=template("128Mi")),
            [
                "spec.virtualMachineTemplate: the template -> spec.virtualMachineTemplate: the present template"
                " (it has changed since the import)"
            ],
            [],
            id="a template that has changed",
        ),
        pytest.param(
            older(imported(OPPORTUNISTIC), OPPORTUNISTIC),
            OPPORTUNISTIC,
            [],
            ["VM web-0: KubeVirt writes the template into its spec at once; it does not restart"],
            id="an update that has begun",
        ),
        pytest.param(
            replace(
                imported(),
                claims=(claim("root-7", **{meta.KEPT_FOR: "web-7"}), claim("data-7", **{meta.KEPT_FOR: "web-7"})),
            ),
            kept_spec(),
            [],
            [
                "disk root-7: KubeVirt gives it to the next web-7",
                "disk data-7: it stays, and `kubectl poolhouse disks` lists it",
            ],
            id="retained disks",
        ),
    ],
)
def test_what_the_way_back_changes_is_said(
    observed: Observed, spec: Json, changes: list[str], notes: list[str]
) -> None:
    found = check_return(observed)
    assert found.data["spec"] == spec
    assert [str(each) for each in found.changes] == changes
    assert found.notes == (*NOTES, *notes)


def only(found: list[Write] | Wait) -> Write:
    assert isinstance(found, list)
    (write,) = found
    return write


def test_a_problem_that_comes_up_after_the_pause_resumes_the_pool() -> None:
    observed = imported()
    pause = only(give_back(observed))
    assert pause.body["spec"] == {"paused": True}
    assert pause.body["metadata"]["annotations"] == {meta.RETURNING: "false"}
    spec = {**observed.target["spec"], "paused": True}
    paused = replace(observed, target=poolhouse_pool(spec, annotations={meta.RETURNING: "false"}))
    assert only(give_back(paused)).name == return_record_name("web")
    resume = only(give_back(changed(paused, lambda vm: vm["metadata"].update(deletionTimestamp="now"))))
    assert (resume.resource, resume.body["spec"]) == (POOLS, {"paused": False})
    assert resume.body["metadata"]["annotations"] == {meta.RETURNING: None}
    unconfirmed = {**paused.target, "status": {"observedGeneration": 2}}
    assert isinstance(give_back(replace(paused, target=unconfirmed)), Wait)


def returning(claims: tuple[Json, ...] = (), **source: Any) -> Observed:
    """The state after KubeVirt's pool was created, paused."""
    spec = {**imported().target["spec"], "paused": True}
    target = poolhouse_pool(spec, annotations={meta.RETURNING: "false"})
    observed = replace(imported(), target=target, claims=claims)
    record = only(give_back(observed)).body
    observed = replace(observed, revisions=(*observed.revisions, record))
    created = only(give_back(observed)).body
    assert (created["spec"].get("autohealing"), created["spec"]["paused"]) == (None, True)
    created["metadata"] |= {"uid": THEIRS, **source}
    return replace(observed, source=created)


def test_kubevirt_finds_the_revision_of_each_vm_and_none_of_an_earlier_pool() -> None:
    stale = {"metadata": {"name": "web-3", "uid": "3"}, "data": kept_spec(), "revision": 3}
    other = {"metadata": {"name": "web-5", "uid": "5"}, "data": {"spec": {}}, "revision": 5}
    observed = returning()
    writes = give_back(replace(observed, revisions=(*observed.revisions, stale, other)))
    assert isinstance(writes, list)
    delete, create = writes
    assert (delete.verb, delete.name) == ("delete", "web-3")
    assert create.body["data"]["virtualMachineTemplate"] == observed.source["spec"]["virtualMachineTemplate"]
    assert create.body["metadata"]["ownerReferences"] == owned_by(KUBEVIRT_POOLS, "web", THEIRS)
    moved = give_back(replace(observed, revisions=(*observed.revisions, create.body)))
    assert isinstance(moved, list)
    assert [each.resource for each in moved] == [VMIS, VMS, VMS]
    for each in moved:
        labels = each.body["metadata"]["labels"]
        assert labels == {meta.POOL: None, meta.REVISION: None, REVISION_LABEL: create.name}
    vm = moved[1].body
    assert vm["metadata"]["ownerReferences"] == owned_by(KUBEVIRT_POOLS, "web", THEIRS)
    assert vm["metadata"]["finalizers"] == [FINALIZER]
    assert vm["metadata"]["resourceVersion"] == "7"
    assert vm["spec"]["template"]["metadata"]["labels"][REVISION_LABEL] == create.name


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, Wait("KubeVirt's controller has not confirmed the pause"), id="no status"),
        pytest.param(
            {"conditions": [{"type": "ReplicaPaused", "status": "True"}], "replicas": 1},
            Wait("KubeVirt's controller counts 1 of 2 VMs"),
            id="it has not seen all VMs",
        ),
        pytest.param(
            {"conditions": [{"type": "ReplicaPaused", "status": "True"}], "replicas": 2}, "delete", id="it has"
        ),
    ],
)
def test_our_pool_is_deleted_when_kubevirt_has_seen_all_vms(status: Json, expected: Wait | str) -> None:
    observed = returning()
    created = give_back(observed)
    assert isinstance(created, list)
    vms = copy.deepcopy(observed.vms)
    for vm in vms:
        vm["metadata"]["ownerReferences"] = owned_by(KUBEVIRT_POOLS, "web", THEIRS)
    source = {**(observed.source or {}), "status": status}
    revisions = (*observed.revisions, *(each.body for each in created))
    found = give_back(replace(observed, source=source, revisions=revisions, vms=vms, vmis=()))
    assert found == expected if isinstance(expected, Wait) else only(found).verb == expected


def test_a_pool_of_somebody_else_is_not_touched() -> None:
    with pytest.raises(CannotImport, match="was not created by this command"):
        give_back(returning(annotations={}))
    with pytest.raises(CannotImport, match="is being deleted"):
        give_back(returning(deletionTimestamp="now"))


def test_a_pool_whose_spec_changes_on_the_way_does_not_go_on() -> None:
    observed = returning()
    spec = {**(observed.target or {})["spec"], "maxUnavailable": 1}
    target = poolhouse_pool(spec, annotations={meta.RETURNING: "false"})
    with pytest.raises(CannotImport, match="has changed on the way back"):
        give_back(replace(observed, target=target))
    assert only(give_back(replace(observed, target=target, source=None))).name == return_record_name("web")
    scaled = poolhouse_pool({**(observed.target or {})["spec"], "replicas": 9}, annotations={meta.RETURNING: "false"})
    assert isinstance(give_back(replace(observed, target=scaled)), list)


def test_kubevirts_pool_is_resumed_when_ours_is_gone() -> None:
    observed = replace(returning(), target=None)
    assert is_imported(observed)
    resume = only(give_back(observed))
    assert (resume.resource, resume.uid) == (KUBEVIRT_POOLS, THEIRS)
    assert resume.body["spec"] == {"paused": False, "autohealing": {}}
    done = {**(observed.source or {})}
    done["metadata"] = {**done["metadata"], "annotations": {}}
    left = replace(observed, source=done)
    assert only(give_back(left)).name == record_name("web")
    left = replace(left, revisions=tuple(each for each in left.revisions if "drops" not in each["data"]))
    last = only(give_back(left))
    assert (last.resource, last.name) == (CONTROLLER_REVISIONS, return_record_name("web"))
    assert give_back(replace(left, revisions=())) == []
    with pytest.raises(CannotImport, match="both pools web are gone"):
        give_back(replace(observed, source=None))


def test_the_import_command_keeps_the_pool_while_ours_exists() -> None:
    observed = returning()
    created = give_back(observed)
    assert isinstance(created, list)
    vms = copy.deepcopy(observed.vms)
    (name,) = (each.name for each in created)
    vms[0]["metadata"] |= {"ownerReferences": owned_by(KUBEVIRT_POOLS, "web", THEIRS), "finalizers": [FINALIZER]}
    vms[0]["metadata"]["labels"] = {"app": "web", REVISION_LABEL: name}
    revisions = (
        *observed.revisions,
        *({**each.body, "metadata": each.body["metadata"] | {"uid": "4"}} for each in created),
    )
    found = plan(replace(observed, revisions=revisions, vms=vms, vmis=()))
    moved = only(found).body["metadata"]
    assert (moved["ownerReferences"], moved["finalizers"]) == (owned_by(POOLS, "web", OURS), [])
    assert moved["labels"][meta.REVISION] == vms[1]["metadata"]["labels"][meta.REVISION]
    delete = only(plan(replace(observed, revisions=revisions, vmis=())))
    assert (delete.verb, delete.uid, delete.propagation) == ("delete", THEIRS, "Orphan")
    deleted = replace(observed, revisions=revisions, source=None)
    assert [each.name for each in plan(deleted)] == [name, return_record_name("web")]
    resume = only(plan(replace(deleted, revisions=imported().revisions)))
    assert (resume.resource, resume.body["spec"]) == (POOLS, {"paused": False})
    with pytest.raises(CannotImport, match="can only be completed"):
        plan(replace(observed, target=None))


def test_a_disk_is_retained_again_when_the_pool_stays() -> None:
    disk = claim("root-7", **{meta.KEPT_FOR: "web-7"})
    observed = returning(claims=(disk,))
    created = give_back(observed)
    assert isinstance(created, list)
    freed = manifest(PVCS, "root-7", {}, uid="1", resourceVersion="9")
    other = manifest(PVCS, "root-8", {}, uid="2", resourceVersion="9")
    write = only(plan(replace(observed, claims=(freed, other), vmis=())))
    assert write.body["metadata"]["labels"] == {meta.KEPT_BY: OURS, meta.KEPT_FOR: "web-7"}


def test_an_unfinished_import_is_resumed_at_kubevirt_when_all_vms_are_seen() -> None:
    observed = imported()
    target = poolhouse_pool((observed.target or {})["spec"], annotations={meta.IMPORTING: OLD})
    source = manifest(KUBEVIRT_POOLS, "web", kept_spec(paused=True, autohealing=None), "default", uid=OLD)
    vms = copy.deepcopy(observed.vms)
    for vm in vms:
        vm["metadata"]["ownerReferences"] = owned_by(KUBEVIRT_POOLS, "web", OLD)
    seen = {"conditions": [{"type": "ReplicaPaused", "status": "True"}], "replicas": 1}
    begun = replace(observed, source={**source, "status": seen}, target=target, vms=vms, vmis=())
    assert not is_imported(begun)
    leaving = copy.deepcopy(observed.vms[0])
    leaving["metadata"]["deletionTimestamp"] = "now"
    assert take_back(replace(begun, vms=(leaving, *vms[1:]))) == Wait(
        f"VM {leaving['metadata']['name']} is being deleted"
    )
    assert take_back(begun) == Wait("KubeVirt's controller counts 1 of 2 VMs")
    all_seen = replace(begun, source={**source, "status": {**seen, "replicas": 2}})
    assert only(take_back(all_seen)).body == {"spec": {"paused": None, "autohealing": {}}}
