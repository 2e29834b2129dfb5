"""AdmissionReviews as requests and responses."""

from __future__ import annotations

import base64
import json
from fractions import Fraction
from typing import Any

import pytest

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.service.request_body import RequestRefused
from tests.webhook.builders import disk, request, review, vm
from tests.webhook.json_patch import apply
from webhook.replica_limits import shortages
from webhook.review import (
    CAUSES_LIMIT,
    WARNING_LIMIT,
    WARNINGS_LIMIT,
    AdmissionResponse,
    from_admission_review,
    to_admission_review,
)

VM = vm(disk())


def test_a_request_is_read() -> None:
    assert from_admission_review(review(VM)) == request(VM, resource="virtualmachines.kubevirt.io")


def test_an_update_carries_both_objects() -> None:
    asked = from_admission_review(review(VM, vm()))
    assert (asked.operation, asked.object, asked.old) == ("UPDATE", VM, vm())


def test_a_deletion_has_no_object() -> None:
    assert from_admission_review(review(None, VM, operation="DELETE", object=None)).object is None


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        pytest.param({}, "must be an AdmissionReview", id="nothing"),
        pytest.param(VM, "must be an AdmissionReview", id="the object itself"),
        pytest.param({**review(VM), "apiVersion": "admission.k8s.io/v1beta1"}, "of admission.k8s.io/v1", id="v1beta1"),
        pytest.param({**review(VM), "request": None}, "request: must be an object", id="no request"),
        pytest.param({**review(VM), "request": []}, "request: must be an object", id="a request that is a list"),
        pytest.param(review(VM, uid=None), "request.uid", id="no uid"),
        pytest.param(review(VM, uid=""), "request.uid", id="an empty uid"),
        pytest.param(review(VM, uid=7), "request.uid", id="a uid that is a number"),
        pytest.param(review(VM, operation="PATCH"), "request.operation", id="an unknown operation"),
        pytest.param(review(VM, operation=None), "request.operation", id="no operation"),
        pytest.param(review(VM, kind="VirtualMachine"), "request.kind", id="a kind that is a string"),
        pytest.param(review(VM, kind=None), "request.kind", id="no kind"),
        pytest.param(review(VM, kind={"group": 1}), "request.kind.group", id="a group that is a number"),
        pytest.param(review(VM, object=None), "request.object", id="no object on CREATE"),
        pytest.param(review(VM, object="x"), "request.object", id="an object that is a string"),
        pytest.param(review(VM, oldObject=[]), "request.oldObject", id="an old object that is a list"),
        pytest.param(review(VM, userInfo="root"), "request.userInfo", id="a user that is a string"),
    ],
)
def test_a_malformed_review_is_refused_with_a_message(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        from_admission_review(document)
    assert refusal.value.status == 400
    assert sentence in refusal.value.message


def response(verdict: AdmissionResponse) -> dict[str, Any]:
    return to_admission_review(request(VM), verdict)["response"]


def test_the_response_repeats_the_uid_and_version() -> None:
    told = to_admission_review(request(VM), AdmissionResponse())
    assert (told["apiVersion"], told["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert told["response"] == {"uid": "1b0d", "allowed": True}


def test_a_changed_object_travels_as_a_patch() -> None:
    after = vm(disk(bus="sata"))
    told = response(AdmissionResponse(object=after))
    assert told["patchType"] == "JSONPatch"
    assert apply(VM, json.loads(base64.b64decode(told["patch"]))) == after


def test_an_unchanged_object_has_no_patch() -> None:
    assert response(AdmissionResponse(object=VM)) == {"uid": "1b0d", "allowed": True}


def test_a_denial_lists_every_problem_with_its_path() -> None:
    told = response(AdmissionResponse(problems=(Problem("spec.a", "is bad"), Problem("spec.b[0]", "is worse"))))
    assert not told["allowed"]
    assert told["status"]["code"] == 422
    assert told["status"]["message"] == "spec.a: is bad; spec.b[0]: is worse"
    assert told["status"]["details"] == {
        "group": "kubevirt.io",
        "kind": "VirtualMachine",
        "name": "web",
        "causes": [
            {"reason": "FieldValueInvalid", "field": "spec.a", "message": "is bad"},
            {"reason": "FieldValueInvalid", "field": "spec.b[0]", "message": "is worse"},
        ],
    }


def test_a_denial_never_carries_a_patch() -> None:
    assert "patch" not in response(AdmissionResponse(problems=(Problem("", "no"),), object=vm()))


def test_the_number_of_causes_is_bounded() -> None:
    status = response(AdmissionResponse(problems=tuple(Problem(f"spec[{i}]", "bad") for i in range(10_000))))["status"]
    assert len(status["details"]["causes"]) == CAUSES_LIMIT
    assert status["message"].endswith("and 9000 more")


def test_warnings_fit_into_a_header() -> None:
    (told,) = response(AdmissionResponse(warnings=("line\nbreak\x1b[31m" + "x" * 400,)))["warnings"]
    assert len(told) <= WARNING_LIMIT
    assert told.isprintable()
    assert told.startswith("line break [31mx")


@pytest.mark.parametrize(
    ("number", "length", "shown", "more"),
    [
        pytest.param(14, 256, 14, 0, id="all fit"),
        pytest.param(15, 256, 13, 2, id="one too many"),
        pytest.param(3000, 300, 13, 2987, id="thousands that are cut"),
        pytest.param(100, 35, 100, 0, id="many short ones"),
    ],
)
def test_warnings_that_the_api_server_would_drop_are_counted(number: int, length: int, shown: int, more: int) -> None:
    told = response(AdmissionResponse(warnings=tuple(f"spec[{n}]: ".ljust(length, "x") for n in range(number))))[
        "warnings"
    ]
    assert sum(map(len, told)) <= WARNINGS_LIMIT
    last = [f"and {more} more warnings, for which the response has no room"] if more else []
    assert (len(told[:shown]), told[shown:]) == (shown, last)


def test_a_long_warning_keeps_its_path_and_its_number() -> None:
    """The names of a quota and of a resource may have hundreds of characters."""
    quota = {"metadata": {"name": "q" * 253}, "spec": {"hard": {"count/virtualmachines.kubevirt.io": "5"}}}
    needs = {"count/virtualmachines.kubevirt.io": Fraction(1)}
    (told,) = response(AdmissionResponse(warnings=tuple(shortages("spec.replicas", 60_000, needs, [quota]))))[
        "warnings"
    ]
    assert told.startswith("spec.replicas: ResourceQuota qqq")
    assert told.endswith("qqq allows 5 count/virtualmachines.kubevirt.io, which is enough for 5 of 60000 VMs")


def test_a_missing_right_is_forbidden_not_invalid() -> None:
    status = response(AdmissionResponse(problems=(Problem("", "you may not"),), forbidden=True))["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
