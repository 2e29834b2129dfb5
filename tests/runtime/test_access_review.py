"""Access reviews: the documents that are sent, and the answers."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.runtime.access_review import is_allowed, self_subject_access_review, subject_access_review
from poolhouse.runtime.resource import VMS

ATTRIBUTES = {
    "namespace": "shop",
    "verb": "create",
    "group": "kubevirt.io",
    "version": "v1",
    "resource": "virtualmachines",
}


def test_a_review_about_a_user_has_what_admission_knows_of_the_user() -> None:
    user = {"username": "ada", "uid": "", "groups": ["dev"], "extra": None}
    review = subject_access_review(user, "create", VMS, "shop")
    assert review["spec"] == {"user": "ada", "groups": ["dev"], "resourceAttributes": ATTRIBUTES}


def test_a_review_of_all_namespaces_names_none() -> None:
    attributes = self_subject_access_review("create", VMS, "")["spec"]["resourceAttributes"]
    assert attributes == {name: value for name, value in ATTRIBUTES.items() if name != "namespace"}


@pytest.mark.parametrize(
    ("review", "expected"),
    [
        ({"status": {"allowed": True}}, True),
        ({"status": {"allowed": True, "denied": True}}, False),
        ({"status": {"allowed": "true"}}, False),
        ({"status": None}, False),
        ({}, False),
    ],
)
def test_only_an_explicit_permission_allows(review: dict[str, Any], expected: bool) -> None:
    assert is_allowed(review) is expected
