"""Conflicts of a new object with others: disks, selectors of policies, the default warm pool."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kinds.policies import policy
from tests.kinds.warm import warm_pool
from tests.runtime.faulty_server import Request, status
from tests.webhook.builders import granting, review
from tests.webhook.conftest import RunningWebhook
from tests.webhook.test_explain import api_server
from webhook.conflicts import changed_disks, disk_names, disks_of_pools, disks_of_vms

Json = dict[str, Any]


def templates(*names: Any) -> list[Json]:
    return [{"metadata": {"name": name}} for name in names]


def pool(name: str, *disks: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"dataVolumeTemplates": templates(*disks)}}}}


def vm(name: str, *disks: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"dataVolumeTemplates": templates(*disks)}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pool("web", "root", "logs"), {"root", "logs"}),
        (pool("web", 7, None), set()),
        ({"spec": None}, set()),
        (None, set()),
    ],
)
def test_disk_names(document: Json | None, expected: set[str]) -> None:
    assert disk_names(document) == expected


def test_a_disk_of_another_pool_is_a_warning() -> None:
    (said,) = disks_of_pools({"root"}, [pool("other", "root", "logs"), pool("third", "data")])
    assert said.startswith("spec.template.spec.dataVolumeTemplates: root is also a disk of pool other")


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        pytest.param([vm("db", "root-3")], ["root-3 of VM db exist; "], id="a VM has the disk of an ordinal"),
        pytest.param([vm("db", "root"), vm("db2", "root-x"), vm("db3", "logs-1")], [], id="other names"),
        pytest.param(
            [vm(f"v{n}", f"root-{n}") for n in range(1, 6)], ["root-3 of VM v3 and 2 more exist; "], id="many"
        ),
    ],
)
def test_skipped_ordinals_are_a_warning(machines: list[Json], expected: list[str]) -> None:
    found = list(disks_of_vms({"root"}, machines))
    assert len(found) == len(expected)
    assert all(wanted in said for wanted, said in zip(expected, found, strict=True))


PAST, FUTURE = "2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def until(time: str | None) -> Json:
    return {"expiresAt": time} if time else {}


async def test_equal_selectors_are_denied(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    told = await webhook.review(review(policy("new", {"gpu": ""})))
    assert told["allowed"] is False
    (cause,) = told["status"]["details"]["causes"]
    assert cause["field"] == "spec.selectors"
    assert '"gpu"' in cause["message"]


async def test_an_overlap_that_only_the_tie_break_decides_is_a_warning(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    told = await webhook.review(review(policy("new", {"os": ""})))
    assert told["allowed"] is True
    assert any("comes before" in warning for warning in told["warnings"])


async def test_a_policy_whose_selectors_stay_is_not_compared(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server()
    old = policy("late", {"gpu": ""}, created="3")
    told = await webhook.review(review(policy("late", {"gpu": ""}, created="3", allowPostCopy=True), old))
    assert told["allowed"] is True
    assert webhook.api_server.requests == []


async def test_a_policy_is_admitted_if_others_cannot_be_listed(webhook: RunningWebhook) -> None:
    webhook.api_server.script = api_server(migrationpolicies=(500, status(500, "InternalError")))
    told = await webhook.review(review(policy("new", {"gpu": ""})))
    assert told["allowed"] is True
    assert "cannot compare with other policies" in told["warnings"][0]


async def test_a_policy_that_is_being_deleted_is_no_conflict(webhook: RunningWebhook) -> None:
    going = policy("gpu", {"gpu": ""}, created="1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    webhook.api_server.script = api_server([going])
    assert (await webhook.review(review(policy("new", {"gpu": ""}))))["allowed"] is True


@pytest.mark.parametrize(
    ("theirs", "ours", "allowed"),
    [
        pytest.param(PAST, None, True, id="an expired policy is no conflict"),
        pytest.param(FUTURE, None, False, id="a policy that will expire is one"),
        pytest.param(None, PAST, False, id="an expired policy that gets another time is compared again"),
        pytest.param(None, FUTURE, True, id="a policy that applies already is not compared"),
    ],
)
async def test_expired_policies(webhook: RunningWebhook, theirs: str | None, ours: str | None, allowed: bool) -> None:
    webhook.api_server.script = api_server([policy("gpu", {"gpu": ""}, created="1", **until(theirs))])
    old = policy("late", {"gpu": ""}, created="2", **until(ours)) if ours else None
    asked = policy("late", {"gpu": ""}, created="2", **until("2999-02-01T00:00:00Z" if ours else None))
    assert (await webhook.review(review(asked, old)))["allowed"] is allowed


POOLS = "/apis/poolhouse.dev/v1alpha1/namespaces/shop/virtualmachinewarmpools"


@pytest.mark.parametrize(
    ("there", "old", "denied"),
    [
        pytest.param([], None, False, id="the first"),
        pytest.param([{"name": "db"}], None, True, id="a second one"),
        pytest.param(
            [{"name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z"}], None, False, id="the other is being deleted"
        ),
        pytest.param([{"name": "web"}], None, False, id="itself"),
        pytest.param([{"name": "db"}], warm_pool(default=False), True, id="becomes the default"),
        pytest.param([{"name": "db"}], warm_pool(default=True), False, id="is the default already"),
    ],
)
async def test_a_namespace_has_one_default(
    webhook: RunningWebhook, there: list[Json], old: Json | None, denied: bool
) -> None:
    async def listing(http: Request) -> None:
        if http.method == "GET" and http.path.startswith(POOLS):
            items = [{"metadata": metadata, "spec": {"default": True}} for metadata in there]
            return await http.answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})
        return await granting(http)

    webhook.api_server.script = listing
    document = warm_pool(default=True, paused=True)
    document["metadata"]["namespace"] = "shop"
    response = await webhook.review(review(document, old))
    assert response["allowed"] != denied
    if denied:
        assert "db is this namespace's default pool" in response["status"]["message"]


def entry(name: object, image: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"source": {"registry": {"url": image}}}}


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        pytest.param([entry("root", "a")], [entry("root", "b")], "dataVolumeTemplates[0].spec", id="another image"),
        pytest.param([entry("root", "a")], [entry("data", "b"), entry("root", "a")], None, id="another disk"),
        pytest.param([entry("root", "a")], [], None, id="a disk less"),
        pytest.param([entry([], "a")], [entry([], "b")], None, id="no name"),
    ],
)
def test_a_changed_disk_reaches_no_disk_that_exists(old: list[Json], new: list[Json], path: str | None) -> None:
    before, after = ({"spec": {"template": {"spec": {"dataVolumeTemplates": each}}}} for each in (old, new))
    found = list(changed_disks(before, after))
    assert [path in each for each in found] == ([True] if path else [])
    assert list(changed_disks(None, after)) == []


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        pytest.param({}, ["keep their content"], id="by default"),
        pytest.param({"replacePolicy": "Recreate"}, ["is retained"], id="they are replaced"),
        pytest.param({"maxSurge": 1}, [], id="the VMs are replaced"),
    ],
)
def test_a_changed_disk_of_a_pool_that_replaces(update: Json, expected: list[str]) -> None:
    before, after = (
        {"spec": {"updateStrategy": {"proactive": update}, "template": {"spec": {"dataVolumeTemplates": each}}}}
        for each in ([entry("root", "a")], [entry("root", "b")])
    )
    found = list(changed_disks(before, after))
    assert [text in each for text, each in zip(expected, found, strict=True)] == [True] * len(expected)
