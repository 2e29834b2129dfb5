"""The table of docs/security.md that says what a claimant can do: each row is tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controllers.claim import steps
from controllers.claim.expiry import expires_at
from controllers.claim.plan import plan
from controllers.claim.snapshot import Failure
from controllers.warmpool import ssh_keys
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import CLAIM
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm
from tests.kinds.warm import claim
from tests.webhook import test_pod_claims, test_references
from tests.webhook.builders import request
from tests.webhook.conftest import RunningWebhook
from webhook.admission import complete, validate_kind

CLOSED = {"allowedOverrides": None, "allowedPersonalization": None}
READY = a_vm("m")


def outcome(claim_policy: dict[str, Any] | None = None, **spec: Any) -> Any:
    """The next step of a claim while a VM is ready; the reason if the claim fails."""
    pool = a_pool(claimPolicy=claim_policy or CLOSED, placements=[{"name": "east"}])
    step = plan(snapshot(a_claim(**spec), pool=pool, candidate=READY), NOW)
    if isinstance(step, steps.UpdateStatus) and step.status.phase == "Failed":
        return next(each.reason for each in step.status.conditions if each.type == "Bound")
    return type(step)


def takes_a_ready_vm() -> None:
    assert outcome() is steps.ReserveVM


def has_a_vm_created() -> None:
    empty = snapshot(pool=a_pool(claimPolicy=CLOSED))
    assert isinstance(plan(empty, NOW), steps.CreateVM)
    assert not isinstance(plan(replace(empty, pool_full=True), NOW), steps.CreateVM)
    refusing = snapshot(pool=a_pool(claimPolicy={**CLOSED, "onEmpty": "Fail"}))
    assert not isinstance(plan(refusing, NOW), steps.CreateVM)


def overrides_what_is_listed() -> None:
    values = {"image": "evil", "instancetype": "huge", "placement": "east", "keyPair": "k", "iamInstanceProfile": "p"}
    for name, value in values.items():
        assert outcome(overrides={name: value}) == "OverrideNotAllowed"
        others = [other for other in values if other != name]
        assert outcome({"allowedOverrides": others}, overrides={name: value}) == "OverrideNotAllowed"
    assert outcome({"allowedOverrides": ["placement"]}, overrides={"placement": "east"}) is steps.ReserveVM
    for annotation in (meta.IMAGE_ID, meta.INSTANCE_TYPE):
        assert outcome(annotations={annotation: "evil"}) == "OverrideNotAllowed"


def personalizes_what_is_listed() -> None:
    fields = {"labels": {"team": "blue"}, "hostname": "mine", "sshPublicKeySecret": "keys"}
    for name, value in fields.items():
        assert outcome(personalization={name: value}) == "PersonalizationNotAllowed"
        others = [other for other in fields if other != name]
        policy = {"allowedPersonalization": others}
        assert outcome(policy, personalization={name: value}) == "PersonalizationNotAllowed"
        # A waiting VM has booted with another host name.
        step = steps.CreateVM if name == "hostname" else steps.ReserveVM
        assert outcome({"allowedPersonalization": [name]}, personalization={name: value}) is step


def runs_programs_where_allowed() -> None:
    application = {"containers": [{"name": "a", "command": ["sh"]}]}
    assert outcome(application=application) == "ApplicationNotAllowed"
    assert outcome({**CLOSED, "allowApplication": True}, application=application) == "ApplicationUnsupported"


def cannot_set_reserved_labels() -> None:
    for label in (meta.CLAIM_UID, meta.WARM_STATE, "kubevirt.io/domain", "vm.kubevirt.io/name"):
        assert CLAIM.problems(claim(poolName="web", personalization={"labels": {label: "x"}}))


def passes_public_keys_only() -> None:
    for content in ("aHVudGVyMg==", "LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZLS0tLS0=", ""):
        assert ssh_keys.public_keys({"key": content}) == ({}, ["key"])


def stays_in_its_namespace() -> None:
    assert CLAIM.problems(claim(poolName="other/web"))
    nowhere = snapshot(no_pool=Failure("PoolNotFound", "namespace ns has no warm pool web"))
    assert not isinstance(plan(nowhere, NOW), steps.ReserveVM | steps.CreateVM)


def claims_as_itself() -> None:
    asked = request(claim(poolName="web", annotations={meta.REQUESTER: "somebody"}))
    stored = complete(asked, validate_kind(asked, CLAIM), CLAIM).object
    assert at(stored, "metadata", "annotations", meta.REQUESTER) == "jane"


def ends_in_time() -> None:
    end_of_the_pool = format_micro_time(NOW + timedelta(seconds=600))
    bound = a_claim(ttlSeconds=7200, status=bound_status("m", seconds=0, expiresAt=end_of_the_pool))
    limited = snapshot(bound, claimed_vm("m"), pool=a_pool(claimPolicy={**CLOSED, "maxTTLSeconds": 600}))
    end = expires_at(limited)
    assert end is not None
    assert (end - NOW).total_seconds() <= 600


def changes_nothing_later() -> None:
    application = {"containers": [{"name": "a", "command": ["sh"]}]}
    before = claim(
        poolName="web", overrides={"placement": "east"}, personalization={"hostname": "a"}, application=application
    )
    for field in ("poolName", "overrides", "personalization", "application"):
        after = {**before, "spec": {key: value for key, value in before["spec"].items() if key != field}}
        assert CLAIM.validate_update(before, after)


ROWS: dict[str, Callable[[], None]] = {
    "Take a ready VM of a pool of the namespace": takes_a_ready_vm,
    "Have a VM created from the pool's template": has_a_vm_created,
    "Choose the image, instance type or placement": overrides_what_is_listed,
    "Give the VM labels, a host name or SSH keys": personalizes_what_is_listed,
    "Run a program of the claimant's choice in the VM with `spec.application`": runs_programs_where_allowed,
    "Set labels of Poolhouse or KubeVirt": cannot_set_reserved_labels,
    "Pass anything but public keys as SSH keys to a guest": passes_public_keys_only,
    "Take a VM of another namespace": stays_in_its_namespace,
    "Hold more VMs than `maxPerUser` by claiming as somebody else": claims_as_itself,
    "Keep a VM longer than `maxTTLSeconds`": ends_in_time,
    "Change the pool, overrides, personalization or application of a claim later": changes_nothing_later,
}
WITH_ADMISSION = [
    "Name a ConfigMap or a Secret for SSH keys or an application that the claimant may not get",
    "Make a claim that counts as a Pod's, or take a claim from its Pod",
]


def documented() -> list[str]:
    page = Path(__file__).parents[2].joinpath("docs/security.md").read_text()
    section = page.partition("## What a claimant can do")[2].partition("\n##")[0]
    return [row for row in re.findall(r"^\| (.+?) \|", section, re.MULTILINE) if row not in ("---", "A claimant can")]


def test_each_row_of_the_table_has_a_test() -> None:
    assert sorted(documented()) == sorted([*ROWS, *WITH_ADMISSION])


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    ROWS[row]()


async def test_a_claim_that_counts_as_that_of_a_pod(webhook: RunningWebhook) -> None:
    await test_pod_claims.test_others_are_refused(webhook)
    controlled, owned = test_pod_claims.of_a_pod(), test_pod_claims.OWNED
    for before, after in ((owned, controlled), (controlled, owned)):
        await test_pod_claims.test_nobody_else_changes_the_pod_of_a_claim(webhook, before, after, "jane may")


async def test_a_secret_that_the_claimant_may_not_get(webhook: RunningWebhook) -> None:
    await test_references.test_another_secret_is_refused(webhook)
    await test_references.test_another_secret_of_an_application_is_refused(webhook)
