"""A template that is spelt differently is no update, and hashes in stored objects stay valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Update
from controllers.pool.plan import plan
from controllers.pool.pools import Pool
from controllers.pool.power import merge_run_strategy, starts, stops
from controllers.pool.revision_content import content, document_hash
from controllers.pool.revisions import Revision, current_revision
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.template_merge import merge_template
from poolhouse.api.kubevirt.meaning import DATA_VOLUME_SPEC, canonical
from tests.controllers.pool.builders import NOW, a_pool, halted, snapshot, vm, vmi

RECREATE = {"proactive": {"replacePolicy": "Recreate"}}


def pool_with(size: Any = "1Ti", guest: Any = "128Mi", power: Any = None, devices: Any = None, **fields: Any) -> Pool:
    disk = {"metadata": {"name": "root"}, "spec": {"storage": {"resources": {"requests": {"storage": size}}}, **fields}}
    domain = {"memory": {"guest": guest}, "devices": devices}
    inner = {"domain": domain, "volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}
    template = {"spec": {**(power or {"running": True}), "dataVolumeTemplates": [disk], "template": {"spec": inner}}}
    return a_pool(2, template=template, updateStrategy=RECREATE)


def revision_of(pool: Pool, *known: Revision) -> Revision:
    return current_revision("web", "u-web", content(pool.spec), known, namespace=pool.namespace)[0]


def observed(before: Pool, now: Pool, **facts: Any) -> PoolSnapshot:
    """Two VMs of the first pool's template, in a pool with the template of the second."""
    old = revision_of(before)
    new = revision_of(now, old)
    hashes = ",".join(f"{name}={found}" for name, found in old.disks)
    given = {"revision": old.label, "disks": ("root-1",), "disk_templates": hashes, **facts}
    vms = [
        vm(number, vmi=vmi(f"web-{number}", revision=old.label), **{**given, "disks": (f"root-{number}",)})
        for number in (1, 2)
    ]
    revisions = (old,) if new is old else (old, new)
    return snapshot(now, *vms, revision=new, revisions=revisions)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(pool_with("1024Gi"), id="the size in another unit"),
        pytest.param(pool_with(1099511627776), id="the size as a number"),
        pytest.param(pool_with(guest=134217728), id="memory as a number"),
        pytest.param(pool_with(power={"runStrategy": "Always"}), id="the run strategy in another field"),
        pytest.param(pool_with(contentType="kubevirt", finalCheckpoint=False), id="what CDI assumes"),
        pytest.param(pool_with(devices={"autoattachSerialConsole": True}), id="what no preference changes"),
    ],
)
def test_a_spelling_is_no_update(now: Pool) -> None:
    found = plan(observed(pool_with(), now), NOW)
    assert found.actions == ()
    assert found.waits == ()


def source_ref(**fields: str) -> dict[str, Any]:
    return {"kind": "DataSource", "name": "debian", **fields}


@pytest.mark.parametrize("spelt", [source_ref(namespace=pool_with().namespace), source_ref()])
def test_the_pool_s_own_namespace_is_no_update(spelt: Any) -> None:
    for before, after in ((spelt, source_ref()), (source_ref(), spelt)):
        assert plan(observed(pool_with(sourceRef=before), pool_with(sourceRef=after)), NOW).actions == ()
    (update,) = plan(observed(pool_with(sourceRef=spelt), pool_with(sourceRef=source_ref(namespace="b"))), NOW).actions[
        -1:
    ]
    assert isinstance(update, Update)
    assert [each.entry for each in update.replacements] == ["root"]


def test_a_hash_with_the_pool_s_own_namespace_stands_for_its_entry() -> None:
    """Earlier releases counted the namespace, and VMs and retained disks still have that hash."""
    before = pool_with(sourceRef=source_ref(namespace=pool_with().namespace))
    spec = before.spec.template["spec"]["dataVolumeTemplates"][0]["spec"]
    stored = document_hash(canonical(spec, DATA_VOLUME_SPEC))[:10]
    for now in (before, pool_with(sourceRef=source_ref())):
        found = observed(before, now, disk_templates=f"root={stored}")
        assert plan(found, NOW).actions == ()
        assert found.entry_hash(stored) == dict(found.revision.disks)["root"] != stored


def test_another_size_is_an_update_with_other_disks() -> None:
    (update,) = plan(observed(pool_with(), pool_with("2Ti")), NOW).actions[-1:]
    assert isinstance(update, Update)
    assert [each.entry for each in update.replacements] == ["root"]


def test_revisions_of_one_meaning_are_one() -> None:
    """Earlier releases stored a revision for each spelling."""
    first = replace(revision_of(pool_with("1Ti")), number=1)
    second = replace(revision_of(pool_with("1024Gi")), name="web-other", number=2)
    assert current_revision("web", "u-web", content(pool_with().spec), [first, second]) == (second, True)


@pytest.mark.parametrize("size", ["1Ti", "1024Gi"])
def test_a_hash_of_an_earlier_release_stands_for_its_entry(size: str) -> None:
    """Earlier releases hashed the entry as it was spelt, and VMs and retained disks still have that hash."""
    before = pool_with(size)
    spec = before.spec.template["spec"]["dataVolumeTemplates"][0]["spec"]
    stored = document_hash(spec)[:10]
    found = observed(before, pool_with(), disk_templates=f"root={stored}.5f3c2a1b0d")
    assert not found.outdated_disks(found.vms[0])
    assert found.entry_hash(stored) == dict(found.revision.disks)["root"]
    assert found.entry_hash("0123456789") == "0123456789"


@pytest.mark.parametrize(
    ("live", "base", "new", "expected"),
    [
        pytest.param("Always", "Always", "Always", "Always", id="no change"),
        pytest.param("Halted", "Always", "Always", "Halted", id="a user has stopped the VM"),
        pytest.param("Halted", "Always", "RerunOnFailure", "Halted", id="a VM that a user has stopped stays stopped"),
        pytest.param("Always", "Always", "RerunOnFailure", "RerunOnFailure", id="another way to run"),
        pytest.param("Always", "RerunOnFailure", "Once", "Once", id="another way to run than a user's"),
        pytest.param("Always", "Halted", "Halted", "Always", id="a user has started the VM"),
        pytest.param("Always", "Always", "Halted", "Halted", id="the author halts the VMs"),
        pytest.param("Halted", "Halted", "Always", "Always", id="the author starts the VMs"),
        pytest.param("Halted", "Always", "Halted", "Halted", id="the author halts VMs that are halted"),
        pytest.param("Manual", "Always", "RerunOnFailure", "Manual", id="a user's own run strategy"),
        pytest.param("Always", "Always", "Manual", "Manual", id="the author leaves it to users"),
        pytest.param("Halted", "Manual", "Always", "Always", id="the author no longer leaves it to users"),
    ],
)
def test_merged_run_strategies(live: str, base: str, new: str, expected: str) -> None:
    assert merge_run_strategy(live, base, new) == expected
    assert stops(live, base, new) is (live != "Halted" == expected)
    assert starts(live, base, new) is (live == "Halted" and expected in ("Always", "RerunOnFailure", "Once"))


@pytest.mark.parametrize(
    ("live", "base", "new", "expected"),
    [
        pytest.param(
            {"running": False}, {"running": True}, {"runStrategy": "Always"}, {"running": False}, id="stopped"
        ),
        pytest.param({"running": True}, {"running": True}, {"runStrategy": "Always"}, {"running": True}, id="running"),
        pytest.param(
            {"runStrategy": "Halted"}, {"running": True}, {"running": True}, {"runStrategy": "Halted"}, id="by virtctl"
        ),
        pytest.param(
            {"runStrategy": "Always"}, {"runStrategy": "Always"}, {"running": False}, {"running": False}, id="halted"
        ),
        pytest.param(
            {"running": True},
            {"running": True},
            {"runStrategy": "RerunOnFailure"},
            {"runStrategy": "RerunOnFailure"},
            id="another run strategy",
        ),
    ],
)
def test_a_vm_has_one_field_of_its_run_strategy(live: Any, base: Any, new: Any, expected: Any) -> None:
    documents = ({"metadata": {}, "spec": {**each, "template": {}}} for each in (live, base, new))
    assert merge_template(*documents)["spec"] == {**expected, "template": {}}


HALTED = {"runStrategy": "Halted"}


def test_an_author_halts_vms_within_the_budget() -> None:
    found = observed(pool_with(), pool_with(power=HALTED))
    (update,) = [each for each in plan(found, NOW).actions if isinstance(each, Update)]
    assert update.halts
    assert "halts the VM" in update.reason
    assert [each.name for each in plan(found, NOW).waits] == [
        name for name in ("web-1", "web-2") if name != update.name
    ]
    steps = [each.name for step in simulate(found, NOW).steps for each in step.actions if isinstance(each, Update)]
    assert sorted(steps) == ["web-1", "web-2"]


def test_an_author_halts_vms_that_are_halted_without_a_disruption() -> None:
    old = revision_of(pool_with())
    now = pool_with(power=HALTED)
    new = revision_of(now, old)
    vms = (halted(number, revision=old.label, run_strategy="Halted") for number in (1, 2))
    found = plan(snapshot(now, *vms, revision=new, revisions=(old, new)), NOW)
    updates = sorted((each.name, each.halts) for each in found.actions if isinstance(each, Update))
    assert updates == [("web-1", False), ("web-2", False)]


def test_a_plan_says_that_an_author_starts_vms() -> None:
    old = revision_of(pool_with(power=HALTED))
    now = pool_with()
    new = revision_of(now, old)
    stopped = halted(1, revision=old.label, run_strategy="Halted")
    started = vm(2, vmi=vmi("web-2", revision=old.label), revision=old.label)
    found = plan(snapshot(now, stopped, started, revision=new, revisions=(old, new)), NOW)
    reasons = {each.name: each.reason for each in found.actions if isinstance(each, Update)}
    assert reasons == {"web-1": "it is halted: the update starts it", "web-2": "the change needs no restart"}
