"""Questions to the API server about who may do what, as the documents it wants and their answers."""

from __future__ import annotations

from typing import Any

from runtime.resource import Resource

Json = dict[str, Any]

SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def subject_access_review(user: Json, verb: str, resource: Resource, namespace: str) -> Json:
    """May this user (an admission request's userInfo) do it? For `SUBJECT_PATH`, asked with our own rights."""
    who = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
    spec = {"user": user.get("username", ""), **who, "resourceAttributes": _attributes(verb, resource, namespace)}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def self_subject_access_review(verb: str, resource: Resource, namespace: str) -> Json:
    """May whoever asks do it? For `SELF_PATH`, asked with their token."""
    spec = {"resourceAttributes": _attributes(verb, resource, namespace)}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def is_allowed(review: Json) -> bool:
    status = review.get("status")
    return isinstance(status, dict) and status.get("allowed") is True and status.get("denied") is not True


def _attributes(verb: str, resource: Resource, namespace: str) -> Json:
    where = {"namespace": namespace} if namespace else {}
    what = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    return {**where, "verb": verb, **what}
