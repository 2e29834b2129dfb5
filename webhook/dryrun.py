"""Every step of admission, on demand: what would become of this object if its sender created it now?

The API server is the judge, asked with the sender's own token: it may ask for what it may do, and gets every webhook,
quota and policy on the way. Nothing is created. What we can tell alone is told first, all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from defaulter.contract import DefaulterUnavailable, InvalidDocument
from kinds import by_gvk
from kinds.checks.metadata import is_label, is_subdomain
from kinds.kind import Kind
from runtime import access_review
from runtime.api import Api
from runtime.errors import ApiError, Forbidden, Throttled
from runtime.resource import VMIS, VMS, Resource
from webhook.api_errors import problems_of
from webhook.body import Unreadable
from webhook.defaulting import DefaulterClient, problems_in
from webhook.plans import PlanClient

Json = dict[str, Any]
Operation = Literal["create", "update"]

VERBS: Mapping[Operation, tuple[str, ...]] = {"create": ("create",), "update": ("get", "update")}
"""what the sender must be allowed"""

LIBVIRT_SHAPED = ("kubevirt.io/v1alpha1", "VM")
"""of the document "Ahead of Time libvirt Defaulting": it lives in this API only, no API server has it"""

KUBEVIRT = {(resource.api_version, resource.kind): resource for resource in (VMS, VMIS)}


@dataclass(frozen=True)
class Answer:
    status: int = 200
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    object: Json | None = None
    """as it would be stored"""
    plan: list[Json] | None = None
    """what a controller would do then, for the kinds that have one"""
    retry_after_seconds: float | None = None

    @property
    def body(self) -> Json:
        allowed = self.status == 200 and not self.problems
        told = [{"path": problem.path, "message": problem.message} for problem in self.problems]
        body = {"allowed": allowed, "problems": told, "warnings": list(self.warnings), "object": self.object}
        return body if self.plan is None else {**body, "plan": self.plan}


@dataclass(frozen=True)
class Target:
    """What is asked about, and where."""

    document: Json
    resource: Resource
    kind: Kind | None
    """for kinds of ours"""

    @property
    def namespace(self) -> str:
        named = at(self.document, "metadata", "namespace")
        return (named if isinstance(named, str) and named else "default") if self.resource.namespaced else ""


def target(document: Json) -> Target | None:
    """None for a kind that is not examined here. Raises `Unreadable` for what is no object of Kubernetes at all."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise Unreadable(400, "the body must be an object of Kubernetes, with apiVersion and kind")
    if (api_version, kind) == LIBVIRT_SHAPED:
        return Target(document, VMS, None)
    if resource := KUBEVIRT.get((api_version, kind)):
        return Target(document, resource, None)
    ours = by_gvk(api_version, kind)
    if ours is None:
        return None
    group, _, version = api_version.rpartition("/")
    return Target(document, Resource(group, version, ours.plural, ours.kind, ours.namespaced), ours)


def local_problems(asked: Target, operation: Operation) -> tuple[Problem, ...]:
    """What is wrong by our own knowledge. Names first: they become part of a path that is called."""
    metadata = asked.document.get("metadata")
    if not isinstance(metadata, dict):
        return (Problem("metadata", "must be an object with a name"),)
    found = []
    if asked.resource.namespaced and not is_label(asked.namespace):
        found.append(Problem("metadata.namespace", "is not the name of a namespace"))
    elif not isinstance(metadata.get("namespace", ""), str):
        found.append(Problem("metadata.namespace", "must be text"))
    if operation == "update" and not (isinstance(name := metadata.get("name"), str) and is_subdomain(name)):
        found.append(Problem("metadata.name", "must name the object that exists"))
    if asked.kind is not None:
        found += asked.kind.problems(asked.kind.normalize(asked.document))
    return tuple(dict.fromkeys(found))


@dataclass
class DryRun:
    api: Api
    defaulter: DefaulterClient
    seed: str
    plans: PlanClient | None = None

    async def answer(self, document: Json, token: str, operation: Operation = "create") -> Answer:
        """Raises `Unreadable` only."""
        asked = target(document)
        if asked is None:
            return Answer(problems=(Problem("kind", f"is none that is examined here: {document['kind']!r:.80}"),))
        try:
            refusal = await self._rights(asked, token, operation)
            if refusal is not None:
                return refusal
            problems = local_problems(asked, operation)
            if problems:
                return Answer(problems=problems)
            if asked.document["kind"] == LIBVIRT_SHAPED[1]:
                return await self._completed(asked)
            return await self._stored(asked, token, operation)
        except ApiError as error:
            return _unanswered(error)

    async def _rights(self, asked: Target, token: str, operation: Operation) -> Answer | None:
        """Why the sender gets no answer; None when it may do what it asks about."""
        for verb in VERBS[operation]:
            question = access_review.self_subject_access_review(verb, asked.resource, asked.namespace)
            if not access_review.is_allowed(
                await self.api.request("POST", access_review.SELF_SUBJECT_ACCESS_REVIEWS, body=question, token=token)
            ):
                where = f" in namespace {asked.namespace}" if asked.namespace else ""
                return Answer(403, (Problem("", f"you may not {verb} {asked.resource.plural}{where}"),))
        return None

    async def _completed(self, asked: Target) -> Answer:
        try:
            done = await self.defaulter.complete(asked.document, namespace=asked.namespace, seed=self.seed or None)
        except InvalidDocument as refusal:
            return Answer(problems=problems_in(refusal))
        except DefaulterUnavailable as away:
            return Answer(503, (Problem("", f"the defaulter is away: {away.reason}"),), retry_after_seconds=1)
        return Answer(object=done.object, warnings=tuple(done.warnings))

    async def _stored(self, asked: Target, token: str, operation: Operation) -> Answer:
        warnings: list[str] = []
        try:
            stored = await self._sent(asked, token, operation, warnings)
        except ApiError as error:
            problems = problems_of(error)
            if not problems:
                raise
            return Answer(problems=problems, warnings=tuple(warnings))
        # The API server sends our own warnings back, and those of everybody else.
        # Who last wrote which field is about this request, not about the object.
        stored.get("metadata", {}).pop("managedFields", None)
        return await self._planned(asked, stored, token, warnings)

    async def _sent(self, asked: Target, token: str, operation: Operation, warnings: list[str]) -> Json:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        if operation == "create":
            path = asked.resource.path(asked.namespace)
            return await self.api.request(
                "POST", path, body=asked.document, query=query, token=token, warnings=warnings
            )
        path = asked.resource.path(asked.namespace, str(at(asked.document, "metadata", "name") or ""))
        body = asked.document
        if not at(body, "metadata", "resourceVersion"):
            stored = await self.api.request("GET", path, token=token)
            version = at(stored, "metadata", "resourceVersion")
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return await self.api.request("PUT", path, body=body, query=query, token=token, warnings=warnings)

    async def _planned(self, asked: Target, stored: Json, token: str, warnings: list[str]) -> Answer:
        if self.plans is None or asked.kind is None or not asked.kind.plan_path:
            return Answer(object=stored, warnings=tuple(warnings))
        told = await self.plans.of(asked.kind, stored, token)
        return Answer(object=stored, warnings=(*warnings, *told.warnings), plan=told.plan)


def _unanswered(error: ApiError) -> Answer:
    if isinstance(error, Forbidden):
        sentence = "the API server does not know this token" if error.status == 401 else error.message
        return Answer(error.status, (Problem("", sentence),))
    wait = error.retry_after_seconds if isinstance(error, Throttled) else 1
    return Answer(503, (Problem("", f"the API server gave no answer: {error.message}"),), retry_after_seconds=wait)
