"""Disks that were created from an older template: they are reported, and keep their content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Create, ReleaseDisks, Update
from controllers.pool.disk_templates import carried_over, format_hashes, outdated, parse_hashes
from controllers.pool.plan import plan
from controllers.pool.revisions import Revision, current_revision
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.template import build_vm
from controllers.shared.vm import VM, RetainedDisk
from poolhouse.api.kinds import meta
from tests.controllers.pool.builders import NOW, REVISION, a_pool, leaving, snapshot, template, vm

OLD, NEW = (("root", "h1"),), (("root", "h2"),)


@pytest.mark.parametrize(
    ("created", "wanted", "expected"),
    [
        pytest.param({"root": "h1"}, OLD, (), id="the same entry"),
        pytest.param({"root": "h1"}, NEW, ("root",), id="a changed entry"),
        pytest.param({"root": "h1"}, (("data", "h9"), *OLD), (), id="a further disk is created from the new entry"),
        pytest.param({"root": "h1", "data": "h9"}, OLD, (), id="a disk that the template no longer has"),
        pytest.param({}, NEW, (), id="nothing is known"),
    ],
)
def test_outdated(created: dict[str, str], wanted: Any, expected: tuple[str, ...]) -> None:
    assert outdated(created, wanted) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("root=h1,data=h2", {"root": "h1", "data": "h2"}, id="two disks"),
        pytest.param("", {}, id="none"),
        pytest.param("root,=h,data=,x=1=2,y=h1", {"y": "h1"}, id="damaged by hand"),
    ],
)
def test_the_annotation_is_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_hashes(text) == expected


def test_an_update_keeps_the_hashes_of_disks_that_exist() -> None:
    text = carried_over({"root": "h1", "gone": "h3"}, (("data", "h9"), ("root", "h2")))
    assert text == format_hashes((("data", "h9"), ("root", "h1")))


def with_disks(hashes: Any, *vms: VM, **given: Any) -> PoolSnapshot:
    found = replace(REVISION, disks=hashes)
    return snapshot(a_pool(len(vms) or 1), *vms, **{"revision": found, "revisions": (found,), **given})


def test_a_pool_with_older_disks_says_so() -> None:
    observed = with_disks(NEW, vm(1, disk_templates="root=h1"), vm(2, disk_templates="root=h2"))
    planned = plan(observed, NOW)
    assert [(each.name, "root-1" in each.reason) for each in planned.waits] == [("web-1", True)]
    conditions = {each.type: each for each in pool_status(observed, planned, NOW).conditions}
    assert conditions["DisksOutdated"].status == "True"
    assert "1 of 2 VMs" in str(conditions["DisksOutdated"].message)
    assert conditions["Progressing"].reason == "Complete"
    assert "DisksOutdated" in str(conditions["Progressing"].message)


def test_the_revision_stands_for_the_hashes_of_a_vm_of_an_earlier_release() -> None:
    before = Revision("web-r0", "u-web", 1, "m0", REVISION.vmi_hash, disks=OLD)
    now = replace(REVISION, disks=NEW)
    observed = snapshot(a_pool(1), vm(1, revision="r0"), revision=now, revisions=(before, now))
    (update,) = (each for each in plan(observed, NOW).actions if isinstance(each, Update))
    assert update.disk_templates == "root=h1"
    after = simulate(observed, NOW)
    assert [each.name for each in after.waits] == ["web-1"], "the plan of the change shows it too"


def test_a_retained_disk_keeps_its_hash() -> None:
    gone = leaving(1, retains_disks=True, disks=("root-1",), disk_templates="root=h1")
    (release,) = (each for each in plan(with_disks(NEW, gone), NOW).actions if isinstance(each, ReleaseDisks))
    assert release.disk_templates == "root=h1"
    kept = RetainedDisk("default", "root-1", "u-web", "web-1", template_hash="h1")
    (create,) = (
        each for each in plan(with_disks(NEW, retained_disks=(kept,)), NOW).actions if isinstance(each, Create)
    )
    assert create.retained_disks == OLD


def test_a_vm_records_the_entries_of_its_disks() -> None:
    pool = a_pool()
    revision, _ = current_revision("web", "u-web", {"template": template()}, [])
    assert [name for name, _ in revision.disks] == ["root"]
    annotations = build_vm(pool, 1, revision)["metadata"]["annotations"]
    assert annotations[meta.DISK_TEMPLATES] == format_hashes(revision.disks)
    again = build_vm(pool, 1, revision, OLD)["metadata"]["annotations"]
    assert again[meta.DISK_TEMPLATES] == "root=h1"
