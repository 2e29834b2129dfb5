"""New images of DataSources are new revisions of a pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import SaveRevision, Update
from controllers.pool.disk_templates import carried_over, parse_hashes, same_origin
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.known_revisions import KnownRevisions
from controllers.pool.plan import plan
from controllers.pool.pools import Pool, parse_pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import current_revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.stores import Stores
from controllers.pool.template import build_revision, build_vm
from controllers.shared.data_sources import (
    DATA_SOURCES,
    DataSource,
    changed_sources,
    describe_changes,
    parse_data_source,
    resolve_sources,
)
from controllers.shared.image_sources import ImageSources
from controllers.shared.reference_rights import ANSWER_SECONDS, Question, ReferenceRights
from poolhouse.api.kinds.reference_authors import Author
from poolhouse.runtime.errors import ApiError, Unreachable
from tests.controllers.pool.builders import NOW, document, template, vm, vmi
from tests.controllers.pool.stores import observe_pool, put
from tests.controllers.shared.test_reference_rights import a_review

Json = dict[str, Any]

GOLDEN: Json = {
    "metadata": {"name": "root"},
    "spec": {"sourceRef": {"kind": "DataSource", "name": "debian"}, "storage": {}},
}
TRACKING = {"proactive": {"trackDataSources": True, "replacePolicy": "Recreate"}}


def source(name: str, *, namespace: str = "images") -> Json:
    return {"pvc": {"namespace": namespace, "name": name}}


def a_pool(strategy: Json = TRACKING, status: Json | None = None, *disks: Json) -> Pool:
    of = template(dataVolumeTemplates=list(disks or (GOLDEN,)))
    found = parse_pool(document(1, template=of, updateStrategy=strategy, status=status))
    assert isinstance(found, Pool), found
    return found


def revision_of(pool: Pool, *sources: str, known: tuple[Any, ...] = ()) -> Any:
    now = {"root": source(sources[0])} if sources else {}
    return current_revision("web", "u-web", content(pool.spec, now), known, namespace=pool.namespace)[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"spec": {"source": source("a")}}, source("a"), id="a claim"),
        pytest.param(
            {"spec": {"source": {"pvc": {"name": "a"}}}}, source("a", namespace="default"), id="in its own namespace"
        ),
        pytest.param(
            {"spec": {"source": {"snapshot": {"namespace": "images", "name": "a"}}}},
            {"snapshot": {"namespace": "images", "name": "a"}},
            id="a snapshot",
        ),
        pytest.param(
            {"spec": {"source": {"dataSource": {"name": "other"}}}, "status": {"source": source("a")}},
            source("a"),
            id="behind another DataSource",
        ),
        pytest.param({"spec": {"source": {"dataSource": {"name": "other"}}}}, None, id="not resolved yet"),
        pytest.param(
            {"spec": {"source": source("a")}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            None,
            id="not ready",
        ),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_the_source_of_a_data_source(found: Json, expected: Json | None) -> None:
    assert parse_data_source({"metadata": {"namespace": "default", "name": "debian"}, **found}).source == expected


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param(a_pool(), {"root": ("default", "debian")}, id="in the pool's namespace"),
        pytest.param(a_pool({}), {}, id="not without the field"),
        pytest.param(a_pool({"opportunistic": {}}), {}, id="only proactive updates"),
        pytest.param(
            a_pool(
                TRACKING,
                None,
                {**GOLDEN, "spec": {"sourceRef": {"kind": "DataSource", "namespace": "images", "name": "debian"}}},
                {"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}}},
            ),
            {"root": ("images", "debian")},
            id="in another namespace, besides another disk",
        ),
    ],
)
def test_tracked(pool: Pool, expected: Json) -> None:
    assert pool.tracked == expected


NEWER = DataSource("x", "d", "pvc", "images", "b")


@pytest.mark.parametrize(
    ("view", "before", "expected"),
    [
        pytest.param(NEWER, {"root": source("a")}, {"root": source("b")}, id="new"),
        pytest.param(DataSource("x", "d"), {"root": source("a")}, {"root": source("a")}, id="not ready: the last one"),
        pytest.param(None, {"root": source("a")}, {"root": source("a")}, id="the last one while it cannot be read"),
        pytest.param(None, {}, {}, id="never known"),
    ],
)
def test_resolve(view: DataSource | None, before: Json, expected: Json) -> None:
    assert resolve_sources({"root": ("x", "d")}, lambda key: view, before) == expected


@pytest.mark.parametrize(
    ("view", "before", "expected", "refused"),
    [
        pytest.param(NEWER, {"root": source("a")}, True, {"root": source("a")}, id="new"),
        pytest.param(NEWER, {}, True, {}, id="the first"),
        pytest.param(NEWER, {"root": source("b")}, False, {"root": source("b")}, id="the last one"),
        pytest.param(DataSource("x", "d"), {"root": source("a")}, False, {"root": source("a")}, id="not ready"),
        pytest.param(None, {"root": source("a")}, False, {"root": source("a")}, id="unreadable"),
    ],
)
def test_what_is_new_is_asked_about_and_not_used_if_refused(
    view: DataSource | None, before: Json, expected: bool, refused: Json
) -> None:
    keys = {"root": ("x", "d")}
    assert changed_sources(keys, lambda key: view, before) == (keys if expected else {})
    assert resolve_sources(keys, lambda key: view, before, {"root"}) == refused


@pytest.mark.parametrize(
    ("created", "wanted", "expected"),
    [
        ("h1", "h1", True),
        ("h1", "h2", False),
        ("h1.s1", "h1.s1", True),
        ("h1.s1", "h1.s2", False),
        ("h1", "h1.s2", True),
        ("h1.s1", "h1", True),
        ("h1.s1", "h2.s1", False),
    ],
)
def test_the_same_origin(created: str, wanted: str, expected: bool) -> None:
    assert same_origin(created, wanted) == expected


def test_tracking_starts_with_the_present_image() -> None:
    assert carried_over({"root": "h1"}, (("root", "h1.s1"),)) == "root=h1.s1"
    assert carried_over({"root": "h1.s0"}, (("root", "h1.s1"),)) == "root=h1.s0"
    assert carried_over({"root": "h0"}, (("root", "h1.s1"),)) == "root=h0"


def test_a_vm_gets_the_source_of_its_revision() -> None:
    pool = a_pool()
    revision = revision_of(pool, "debian-1")
    (disk,) = build_vm(pool, 1, revision)["spec"]["dataVolumeTemplates"]
    assert disk["spec"] == {"storage": {}, "source": source("debian-1")}
    assert build_revision(pool, revision)["data"]["dataSources"] == {"root": source("debian-1")}
    assert "sourceRef" in pool.spec.template["spec"]["dataVolumeTemplates"][0]["spec"], "the template stays"


def test_the_hash_of_an_entry_is_the_same_in_later_releases() -> None:
    """Another hash would replace the disks of all VMs."""
    revision = revision_of(a_pool(), "debian-1")
    assert dict(revision.disks) == {"root": "4e5f4dc584.34861cc3a7"}
    assert dict(revision_of(a_pool()).disks) == {"root": "4e5f4dc584"}


def test_fields_that_only_the_import_reads_do_not_change_the_disk() -> None:
    more = {**GOLDEN, "spec": {**GOLDEN["spec"], "priorityClassName": "high", "preallocation": True}}
    assert revision_of(a_pool(TRACKING, None, more)).disks == revision_of(a_pool()).disks


def observed(
    image: str | None,
    *vms: Any,
    status: Json,
    revisions: tuple[Any, ...],
    rights: ReferenceRights | None = None,
    author: Author | None = None,
) -> PoolSnapshot:
    view = DataSource("default", "debian", "pvc", "images", image) if image else None
    stores = Stores(revisions=KnownRevisions(images=ImageSources(lambda key: view, rights)))
    pool = replace(a_pool(TRACKING, status), authors={"DataSource default/debian": author} if author else {})
    return observe_pool(put(stores, pool, *revisions, *vms), pool)


def test_a_new_image_replaces_the_disks() -> None:
    first = revision_of(a_pool(), "debian-1")
    status = {"updateRevision": first.name, "currentRevision": first.name}
    run = vmi("web-1", revision=first.label, disks=("root-1",))
    hashes = {"revision": first.label, "disk_templates": f"root={dict(first.disks)['root']}"}
    one = replace(vm(1, **hashes), vmi=run)
    assert not plan(observed("debian-1", one, status=status, revisions=(first,)), NOW).actions
    assert not plan(observed(None, one, status=status, revisions=(first,)), NOW).actions, "unknown is the last one"
    found = observed("debian-2", one, status=status, revisions=(first,))
    save, update = plan(found, NOW).actions
    assert isinstance(save, SaveRevision)
    assert save.number == first.number + 1
    assert save.reason == "disk root: its DataSource points at pvc images/debian-2 now"
    assert isinstance(update, Update)
    assert update.reason.startswith(save.reason)
    assert [each.old for each in update.replacements] == ["root-1"]
    assert parse_hashes(update.disk_templates) == dict(found.revision.disks)


@pytest.mark.parametrize(
    ("home", "stored", "allowed", "told"),
    [
        pytest.param("images", None, True, False, id="nobody has asked for the author of a document"),
        pytest.param("images", "others", True, False, id="admission has asked for a pool with another reference"),
        pytest.param("images", "images", True, True, id="admission has asked for the author of the pool"),
        pytest.param("images", "images", False, False, id="the author of the pool may not get the image any more"),
        pytest.param("default", None, True, True, id="the DataSource is in the namespace of the pool"),
    ],
)
async def test_a_plan_tells_only_images_that_the_author_of_the_pool_may_get(
    home: str, stored: str | None, allowed: bool, told: bool
) -> None:
    def tracking(namespace: str) -> Json:
        reference = {**GOLDEN["spec"]["sourceRef"], "namespace": namespace}
        of = template(dataVolumeTemplates=[{**GOLDEN, "spec": {"sourceRef": reference, "storage": {}}}])
        return document(1, template=of, updateStrategy=TRACKING)

    rights, _ = a_review(allowed)
    await rights.ask([Question(Author("ann"), DATA_SOURCES, home, "debian")])
    sources = ImageSources(lambda key: DataSource(*key, "pvc", "images", "debian-2"), rights)
    stores = Stores(revisions=KnownRevisions(images=sources))
    if stored is not None:
        known = parse_pool(tracking(stored))
        assert isinstance(known, Pool)
        stores.pools.put(known.key, replace(known, authors={f"DataSource {stored}/debian": Author("ann")}))
    found = hypothetical_snapshot(stores, tracking(home), 250)
    assert isinstance(found, PoolSnapshot)
    assert found.revision.sources == ({"root": source("debian-2")} if told else {})
    own = replace(stores, revisions=KnownRevisions(images=replace(sources, rights=None)))
    seen = hypothetical_snapshot(own, tracking(home), 250)
    assert isinstance(seen, PoolSnapshot)
    assert seen.revision.sources == {"root": source("debian-2")}, "a command reads them with the rights of its user"


@pytest.mark.parametrize(
    ("allowed", "author", "updates"),
    [
        pytest.param(True, Author("ann"), True, id="the author may get the DataSource"),
        pytest.param(False, Author("ann"), False, id="the author may not"),
        pytest.param(Unreachable("it is away"), Author("ann"), False, id="unknown"),
        pytest.param(False, None, True, id="admission has not seen the pool: no author"),
    ],
)
async def test_a_new_image_needs_the_right_of_the_author(
    allowed: bool | ApiError, author: Author | None, updates: bool
) -> None:
    first = revision_of(a_pool(), "debian-1")
    one = vm(1, revision=first.label, disk_templates=f"root={dict(first.disks)['root']}")
    known = {"status": {"updateRevision": first.name, "currentRevision": first.name}, "revisions": (first,)}
    rights, api = a_review(allowed)
    await rights.ask([Question(author or Author(""), DATA_SOURCES, "default", "debian")])
    found = observed("debian-2", one, rights=rights, author=author, **known)
    assert any(isinstance(each, Update) for each in plan(found, NOW).actions) is updates
    assert found.revision.sources == {"root": source("debian-2" if updates else "debian-1")}
    assert bool(found.refused_references) is not updates
    assert (plan(found, NOW).again_seconds == ANSWER_SECONDS) is not updates, "the right may be given later"
    shown = {each.type: each.status for each in pool_status(found, plan(found, NOW), NOW).conditions}
    assert shown.get("ReferencesRefused") == (None if updates else "True")
    assert shown["Ready"] == ("False" if updates else "True"), "VMs that nothing changes are as the spec requires"
    same = observed("debian-1", one, rights=a_review(False)[0], author=author, **known)
    assert not same.refused_references, "nobody is asked about an image that the pool has"
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param("True", {"root": "ann may no longer get it"}, id="the controllers do not use the image"),
        pytest.param("False", {}, id="they do"),
    ],
)
def test_a_user_sees_what_the_controllers_were_told(status: str, expected: Json) -> None:
    first = revision_of(a_pool(), "debian-1")
    condition = {"type": "ReferencesRefused", "status": status, "reason": "R", "message": "ann may no longer get it"}
    known = {"updateRevision": first.name, "conditions": [condition]}
    found = observed("debian-2", status=known, revisions=(first,), author=Author("ann"))
    assert found.refused_references == expected
    assert found.revision.sources == {"root": source("debian-1" if expected else "debian-2")}


async def test_a_pool_without_a_status_has_the_image_of_its_newest_revision() -> None:
    """The controllers may end after they have saved the revision, and before they write the status."""
    first = revision_of(a_pool(), "debian-1")
    rights, _ = a_review(False)
    await rights.ask([Question(Author("ann"), DATA_SOURCES, "default", "debian")])
    known = {"status": {}, "revisions": (replace(first, number=0, sources={}), first)}
    found = observed("debian-2", rights=rights, author=Author("ann"), **known)
    assert found.revision.sources == {"root": source("debian-1")}
    assert found.refused_references


def test_the_image_of_another_data_source_is_not_kept() -> None:
    other = {**GOLDEN, "spec": {**GOLDEN["spec"], "sourceRef": {"kind": "DataSource", "name": "fedora"}}}
    first = revision_of(a_pool(TRACKING, None, other), "fedora-1")
    status = {"updateRevision": first.name, "currentRevision": first.name}
    assert not observed(None, status=status, revisions=(first,)).revision.sources


def test_changes_in_words() -> None:
    assert describe_changes({"root": source("a")}, {"root": source("a")}) == ""
    assert describe_changes({}, {"root": source("a")}) == ""
