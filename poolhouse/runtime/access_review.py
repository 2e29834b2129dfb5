"""Asks the API server whether a user may do something, by access reviews of authorization.k8s.io."""

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import Resource

SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def user_may(api: Api, user: Json, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
    """Whether the user of an admission request may do this. Without a name, the question is about all objects."""
    review = subject_access_review(user, verb, resource, namespace, name)
    return is_allowed(await api.request("POST", SUBJECT_ACCESS_REVIEWS, body=review))


async def caller_may(api: Api, verb: str, resource: Resource, namespace: str) -> bool:
    """Whether the user whose credentials the client has may do this."""
    review = self_subject_access_review(verb, resource, namespace)
    return is_allowed(await api.request("POST", SELF_SUBJECT_ACCESS_REVIEWS, body=review))


def subject_access_review(user: Json, verb: str, resource: Resource, namespace: str, name: str = "") -> Json:
    """A review of the user of an admission request, which this process sends with its own credentials. Without a name
    it is about all objects."""
    extra = {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
    return _review("SubjectAccessReview", {"user": user.get("username", ""), **extra}, verb, resource, namespace, name)


def self_subject_access_review(verb: str, resource: Resource, namespace: str) -> Json:
    """A review of the user who sends it."""
    return _review("SelfSubjectAccessReview", {}, verb, resource, namespace)


def is_allowed(review: Json) -> bool:
    status = review.get("status")
    return isinstance(status, dict) and status.get("allowed") is True and status.get("denied") is not True


def _review(kind: str, user: Json, verb: str, resource: Resource, namespace: str, name: str = "") -> Json:
    plural, _, subresource = resource.plural.partition("/")
    attributes = {"verb": verb, "group": resource.group, "version": resource.version, "resource": plural}
    if subresource:
        attributes["subresource"] = subresource
    if namespace:
        attributes["namespace"] = namespace
    if name:
        attributes["name"] = name
    spec = {**user, "resourceAttributes": attributes}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
