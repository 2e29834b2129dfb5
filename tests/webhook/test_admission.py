"""Which requests are checked, and what admission writes into a claim."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.kinds import KINDS, by_gvk
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.meta import IMAGE_ID, REQUESTER
from poolhouse.api.kinds.pool import POOL
from tests.kinds.documents import changed, pool
from tests.kinds.warm import claim
from tests.webhook.builders import disk, patched, request, review, vm
from tests.webhook.conftest import PATIENCE_SECONDS, RunningWebhook
from webhook.admission import Admission, complete, skip_reason, validate_kind
from webhook.review import AdmissionRequest, AdmissionResponse

Json = dict[str, Any]
JANE, JOE = {REQUESTER: "jane"}, {REQUESTER: "joe"}


VMI = ("spec", "template", "spec", "template", "spec")


async def test_a_forged_review_without_a_namespace_is_refused(webhook: RunningWebhook) -> None:
    response = await webhook.client.post("/mutate", json=review(pool(), namespace=""))
    assert (response.status_code, "request.namespace: is required" in response.text) == (400, True)


class Denying:
    """A check that answers when the other checks have begun, too."""

    def __init__(self, together: asyncio.Barrier, path: str, forbidden: bool) -> None:
        self._together, self._path, self._forbidden = together, path, forbidden

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        await self._together.wait()
        return AdmissionResponse((Problem(self._path, "m"),), warnings=(self._path,), forbidden=self._forbidden)


async def test_checks_run_at_the_same_time_and_all_their_problems_are_reported() -> None:
    together = asyncio.Barrier(2)
    checks = Denying(together, "spec.a", True), Denying(together, "spec.b", False)
    async with asyncio.timeout(PATIENCE_SECONDS):
        denied = await Admission(defaulting=checks[0], checks=checks).mutate(request(pool()))
    assert [each.path for each in denied.problems] == ["spec.a", "spec.b"]
    assert denied.warnings[-2:] == ("spec.a", "spec.b")
    assert denied.forbidden


class Above:
    """A limit that every object exceeds."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return AdmissionResponse(await self.problems(request))

    async def problems(self, request: AdmissionRequest) -> tuple[Problem, ...]:
        return (Problem("spec.replicas", "m"),)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, ["spec.replicas"], id="a valid object"),
        pytest.param({"maxUnavailable": -1}, ["spec.maxUnavailable", "spec.replicas"], id="an invalid object"),
    ],
)
async def test_replicas_above_the_limit_are_reported_with_all_other_problems(spec: Json, expected: list[str]) -> None:
    denied = await Admission(defaulting=Above(), checks=(), limit=Above()).mutate(request(pool(**spec)))
    assert [each.path for each in denied.problems] == expected


async def test_an_object_that_is_too_large_is_denied_before_all_other_checks() -> None:
    too_large = pool(template={"spec": {"template": {"spec": {"domain": {"devices": {"disks": [{}] * 60_000}}}}}})
    denied = await Admission(defaulting=Above(), checks=(), limit=Above()).mutate(request(too_large))
    assert [each.path for each in denied.problems] == ["spec.template.spec.template.spec.domain.devices.disks"]


def stored(document: Json, old: Json | None = None, user: str = "jane") -> AdmissionResponse:
    return complete(request(document, old, user={"username": user}), AdmissionResponse(), CLAIM)


@pytest.mark.parametrize(
    ("document", "old", "annotations", "warned"),
    [
        pytest.param(claim(), None, JANE, False, id="the requester is recorded"),
        pytest.param(claim(annotations=JOE), None, JANE, True, id="another requester is overwritten"),
        pytest.param(claim(annotations=JOE), claim(annotations=JANE), JANE, True, id="an update keeps the requester"),
        pytest.param(claim(), claim(annotations=JANE), JANE, False, id="a replaced object keeps the requester"),
        pytest.param(
            claim(annotations={"a": "b"}), claim(), {"a": "b"}, False, id="a claim without a requester stays so"
        ),
    ],
)
def test_the_requester_is_recorded_and_kept(document: Json, old: Json | None, annotations: Json, warned: bool) -> None:
    verdict = stored(document, old)
    assert verdict.object is not None
    assert verdict.object["metadata"].get("annotations", {}) == annotations
    assert bool(verdict.warnings) == warned


def test_annotations_become_fields_at_creation_only() -> None:
    noted = claim(annotations={IMAGE_ID: "ami-1"})
    made_now, changed_now = stored(noted), stored(noted, noted)
    assert made_now.object is not None
    assert made_now.object["spec"] == {"overrides": {"image": "ami-1"}}
    assert changed_now.object is not None
    assert changed_now.object["spec"] == {}


@pytest.mark.parametrize(
    ("document", "old", "looked_at"),
    [
        pytest.param(claim(annotations=JOE), claim(annotations=JANE), True, id="another requester"),
        pytest.param(claim(annotations={IMAGE_ID: "x"}), claim(), True, id="another image"),
        pytest.param(claim(annotations={"a": "b"}), claim(), False, id="any other annotation"),
    ],
)
def test_a_change_of_an_annotation_for_a_spec_field_is_checked(document: Json, old: Json, looked_at: bool) -> None:
    assert (skip_reason(request(document, old)) is None) == looked_at


def test_the_pool_of_a_claim_is_immutable_and_its_ttl_is_not() -> None:
    kind = by_gvk("poolhouse.dev/v1alpha1", "VirtualMachineClaim")
    assert kind is not None
    before = claim(poolName="web")
    assert validate_kind(request(claim(poolName="web", ttlSeconds=5), before), kind).problems == ()
    (problem,) = validate_kind(request(claim(poolName="db"), before), kind).problems
    assert problem.path == "spec.poolName"


async def test_a_stored_claim_names_its_requester(webhook: RunningWebhook) -> None:
    response = await webhook.review(review(claim()))
    assert patched(claim(), response)["metadata"]["annotations"] == JANE


VM = vm(disk())


MORE = vm(disk(), disk("data"))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(request(VM), None, id="a creation is checked"),
        pytest.param(request(MORE, VM), None, id="a changed spec is checked"),
        pytest.param(request(None, VM, operation="DELETE"), "DELETE does not change the spec", id="a deletion"),
        pytest.param(request(VM, operation="CONNECT"), "CONNECT does not change the spec", id="a console"),
        pytest.param(request(MORE, VM, subresource="status"), "status does not change the spec", id="a status"),
        pytest.param(
            request({**VM, "status": {"ready": True}}, VM), "spec does not change", id="a status in the main object"
        ),
        pytest.param(
            request(vm(disk(), meta={"finalizers": []}), vm(disk(), meta={"finalizers": ["x"]})),
            "spec does not change",
            id="a finalizer taken off",
        ),
        pytest.param(
            request(vm(disk("other"), meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), VM),
            "being deleted",
            id="anything that is being deleted",
        ),
        pytest.param(
            request(vm(disk(), meta={"deletionTimestamp": "2036-01-01T00:00:00Z"})),
            None,
            id="a server-side apply that creates an object which is being deleted",
        ),
    ],
)
def test_requests_without_a_change_of_the_spec_are_skipped(asked: Any, why: str | None) -> None:
    found = skip_reason(asked)
    assert found is None if why is None else (found is not None and why in found)


def test_a_denial_has_the_warnings_about_unknown_fields_too() -> None:
    document = changed(changed(pool(), "three", "spec", "replicas"), {}, *VMI, "domain", "cpuu")
    response = validate_kind(request(document), POOL)
    assert [problem.path for problem in response.problems] == ["spec.replicas"]
    assert [warning.partition(": ")[0] for warning in response.warnings] == [".".join((*VMI, "domain", "cpuu"))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("value", [None, 3, "x", [], [3], {}, {"a": [None]}, {3: "x"}, True])
def test_warnings_accept_objects_of_any_shape(kind: Kind, value: Any) -> None:
    for path in ((), ("template",), ("template", "spec"), ("template", "spec", "template", "spec"), ("ec2",)):
        for last in ("domain", "volumes", "dataVolumeTemplates", "metadata", "placements", "standby", "replicas"):
            spec: Any = {last: value}
            for step in reversed(path):
                spec = {step: spec}
            kind.warnings({"metadata": value, "spec": spec})
            kind.warnings({"spec": value})
