"""Templates of the past, compared by what they mean."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.revision_content import content as contents
from controllers.pool.revision_content import content_hash, read
from controllers.pool.revisions import current_revision, parse_revision, without_owner
from controllers.pool.template import build_revision
from poolhouse.runtime.transport import encode
from tests.controllers.pool.builders import a_pool, template

INNER = template()["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="the order of keys means nothing"),
        pytest.param({"a": None}, {}, True, id="null is absent"),
        pytest.param({"a": []}, {}, True, id="an empty list is absent"),
        pytest.param({"a": {}}, {}, False, id="an empty object may be a choice"),
        pytest.param({"a": 2.0}, {"a": 2}, True, id="a whole float is its integer"),
        pytest.param({"a": "2"}, {"a": 2}, False, id="text is not a number"),
        pytest.param({"a": True}, {"a": 1}, False, id="truth is not a number"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, False, id="the order of a list means something"),
        pytest.param({"a": [{"b": None}]}, {"a": [{}]}, True, id="deep inside too"),
    ],
)
def test_content_hash(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (content_hash(one, "") == content_hash(other, "")) is same


def content(**spec: Any) -> dict[str, Any]:
    return {"template": template(**spec), "nameGeneration": {}}


def test_a_new_template_gets_the_next_number_and_an_old_one_is_found_again() -> None:
    first, saved = current_revision("web", "u-web", content(), [])
    assert not saved
    assert first.number == 1
    second, saved = current_revision("web", "u-web", content(running=False), [first])
    assert not saved
    assert second.number == 2
    assert current_revision("web", "u-web", content(), [first, second]) == (first, True)


def test_a_revision_survives_being_stored() -> None:
    pool = a_pool()
    made, _ = current_revision("web", "u-web", contents(pool.spec), [])
    assert parse_revision(json.loads(encode(build_revision(pool, made)))) == made


def test_an_earlier_pool_of_the_same_name_has_other_revisions() -> None:
    old, _ = current_revision("web", "u-old", content(), [])
    new, saved = current_revision("web", "u-web", content(), [old])
    assert not saved
    assert new.name != old.name


@pytest.mark.parametrize(
    ("pool_name", "pool_uid", "owner", "found"),
    [
        pytest.param("web", "1", None, True, id="the owner is gone"),
        pytest.param("web", "1", "1", False, id="the pool owns it"),
        pytest.param("web", "1", "2", False, id="another object owns it"),
        pytest.param("web", "2", None, False, id="an earlier pool of the same name wrote it"),
        pytest.param("db", "1", None, False, id="a pool of another name wrote it"),
    ],
)
def test_a_revision_without_an_owner_is_the_pools_by_its_name(
    pool_name: str, pool_uid: str, owner: str | None, found: bool
) -> None:
    made, _ = current_revision("web", "1", content(), [])
    stored = replace(made, pool_uid=owner or "", number=3)
    expected = (replace(stored, pool_uid=pool_uid),) if found else ()
    assert without_owner(pool_name, pool_uid, [stored]) == expected


def test_a_label_is_short_for_a_long_pool_name() -> None:
    made, _ = current_revision("w" * 60, "u-web", content(), [])
    assert len(made.label) == 10
    assert made.name.endswith(f"-{made.label}")


def test_a_revision_without_an_owner_belongs_to_no_pool() -> None:
    assert parse_revision({"metadata": {"name": "x"}}).pool_uid == ""


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        pytest.param({"replicas": 7, "maxUnavailable": 3}, True, id="what a pool does is not what its VMs are"),
        pytest.param({"nameGeneration": {"appendPostfixToSecretReferences": False}}, True, id="what is so anyway"),
        pytest.param({"nameGeneration": {"appendPostfixToSecretReferences": True}}, False, id="names inside VMs"),
        pytest.param({"template": template(running=False)}, False, id="the template"),
    ],
)
def test_what_makes_another_revision(spec: dict[str, Any], same: bool) -> None:
    one, other = (
        content_hash(contents(a_pool(**each).spec), "") for each in ({"replicas": 3}, {"replicas": 3, **spec})
    )
    assert (one == other) is same


@pytest.mark.parametrize(
    ("changed", "restarts"),
    [
        pytest.param({"running": False}, False, id="whether it runs"),
        pytest.param({"dataVolumeTemplates": []}, False, id="how disks are made"),
        pytest.param({"template": {"metadata": {"labels": {"a": "b"}}, "spec": INNER}}, False, id="labels of the run"),
        pytest.param({"template": {"spec": {**INNER, "hostname": "x"}}}, True, id="what runs"),
        pytest.param({"instancetype": {"name": "u1.large"}}, True, id="the instance type"),
        pytest.param({"preference": {"name": "fedora"}}, True, id="the preference"),
    ],
)
def test_what_needs_a_restart(changed: dict[str, Any], restarts: bool) -> None:
    one, _ = current_revision("web", "u-web", content(), [])
    other, _ = current_revision("web", "u-web", content(**changed), [one])
    assert one.template_hash != other.template_hash
    assert (one.vmi_hash != other.vmi_hash) is restarts


@pytest.mark.parametrize(
    ("volume", "restarts"),
    [
        pytest.param({"containerDisk": {"image": "x"}}, False, id="no volume has a Secret or ConfigMap"),
        pytest.param({"configMap": {"name": "c"}}, False, id="only names of Secrets get the postfix"),
        pytest.param({"secret": {"secretName": "s"}}, True, id="another Secret"),
    ],
)
def test_a_postfix_needs_a_restart_only_where_a_name_gets_it(volume: dict[str, Any], restarts: bool) -> None:
    document = content(template={"spec": {**INNER, "volumes": [{"name": "v", **volume}]}})
    one, _ = current_revision("web", "u-web", document, [])
    names = {"appendPostfixToSecretReferences": True}
    other, _ = current_revision("web", "u-web", {**document, "nameGeneration": names}, [one])
    assert one.template_hash != other.template_hash
    assert (one.vmi_hash != other.vmi_hash) is restarts


def test_a_stored_revision_gives_the_spec_back() -> None:
    pool = a_pool(nameGeneration={"appendPostfixToSecretReferences": True})
    made, _ = current_revision("web", "u-web", contents(pool.spec), [])
    assert pool.spec.model_copy(update=read(build_revision(pool, made))) == pool.spec
