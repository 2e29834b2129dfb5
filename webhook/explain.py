"""Which migration policy a VM obeys and why, or would if something were different. Nothing is changed by asking.

Everything is read with the asker's own rights: whoever may not read policies learns nothing of them. The command line
asks in the same way, without us.

A question is a VirtualMachineInstance or a VirtualMachine, explained as it is written whether it exists or not, or

    {"namespace": "default", "name": "web", "withLabels": {"gpu": "nvidia"}, "withPolicies": [POLICY, ...]}

where the last two are what to suppose: labels of the VMI (null takes one away) and policies that are new or changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from kinds import meta
from kinds.checks.metadata import is_label, is_label_key, is_label_value, is_subdomain
from kinds.migrationpolicy import MIGRATION_POLICY
from kinds.validation import child_path, quoted
from migrationpolicies.conflicts import missing_name
from migrationpolicies.explanation import ClusterState, explain
from migrationpolicies.precedence import is_active
from runtime.api import Api
from runtime.errors import ApiError, Forbidden, NotFound, Throttled
from runtime.resource import VMIS, VMS, Resource

Json = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
POLICIES = Resource(
    MIGRATION_POLICY.group,
    MIGRATION_POLICY.versions[0],
    MIGRATION_POLICY.plural,
    MIGRATION_POLICY.kind,
    MIGRATION_POLICY.namespaced,
)
UPSTREAM = Resource("migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", namespaced=False)
KUBEVIRTS = Resource("kubevirt.io", "v1", "kubevirts", "KubeVirt")

POLICIES_LIMIT = 200
_FIELDS = {"apiVersion", "kind", "namespace", "name", "withLabels", "withPolicies"}


@dataclass(frozen=True)
class Question:
    namespace: str
    name: str
    labels: Mapping[str, str] | None = None
    """of a VM that is supposed; None: those of the VMI that exists"""
    with_labels: Mapping[str, str | None] = field(default_factory=dict)
    with_policies: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Answer:
    status: int
    body: Json
    retry_after_seconds: float | None = None


class InvalidQuestion(Exception):
    """What is wrong with the question, or with what it is about."""

    def __init__(self, *problems: Problem, status: int = 400) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems
        self.status = status


def parse_question(document: Json) -> Question:
    """Raises `Unanswerable`."""
    match document.get("kind"):
        case "VirtualMachineInstance":
            found = _supposed(document, ("metadata", "labels"))
        case "VirtualMachine":
            found = _supposed(document, ("spec", "template", "metadata", "labels"))
        case _:
            found = _asked(document)
    problems = tuple(_problems(found))
    if problems:
        raise InvalidQuestion(*problems)
    return found


class PolicyExplainer:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def answer(self, document: Json, token: str) -> Answer:
        """What the webhook says to whoever has this token."""
        try:
            return Answer(200, await self.told(parse_question(document), token))
        except InvalidQuestion as wrong:
            return _refused(wrong.status, *wrong.problems)
        except Forbidden as error:
            sentence = "the API server does not know this token" if error.status == 401 else error.message
            return _refused(error.status, Problem("", sentence))
        except ApiError as error:
            wait = error.retry_after_seconds if isinstance(error, Throttled) else 1
            return _refused(503, Problem("", f"the API server gave no answer: {error.message}"), wait=wait)

    async def told(self, asked: Question, token: str | None = None) -> Json:
        """With the rights of the token, or without one with our own. Raises `Unanswerable` and `ApiError`."""
        (instance, halted), around, there = await asyncio.gather(
            self._instance(asked, token), self._namespace(asked.namespace, token), self.surroundings(token)
        )
        given = asked.labels if asked.labels is not None else at(instance, "metadata", "labels") or {}
        supposed = {**given, **asked.with_labels}
        labels = {key: value for key, value in supposed.items() if value is not None}
        told = explain(labels, around, there.having(asked.with_policies))
        return {
            "namespace": asked.namespace,
            "name": asked.name,
            **told,
            "stamped": at(instance, "metadata", "labels", meta.MIGRATION_POLICY),
            "halted": halted,
            "supposed": bool(asked.with_labels or asked.with_policies or asked.labels is not None),
        }

    async def surroundings(self, token: str | None = None) -> ClusterState:
        """The policies must be readable; what KubeVirt has is told as far as it may be read."""
        policies, upstream, kubevirts = await asyncio.gather(
            self._list(POLICIES, token), self._perhaps(UPSTREAM, token), self._perhaps(KUBEVIRTS, token)
        )
        first = sorted(kubevirts or (), key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
        unread = tuple(
            what
            for what, found in (
                ("KubeVirt's own migration policies", upstream),
                ("KubeVirt's configuration", kubevirts),
            )
            if found is None
        )
        return ClusterState(tuple(policies), first[0] if first else {}, upstream, unread)

    async def _instance(self, asked: Question, token: str | None) -> tuple[Json, bool]:
        """The VMI, or what the next one of a VM without would be; and whether that is so.

        A VMI that has ended obeys nothing any more, and its VM's template has the labels of the next."""
        if asked.labels is not None:
            return {}, False
        ended: Json | None = None
        try:
            found = await self._get(VMIS.path(asked.namespace, asked.name), token)
            if is_active(found):
                return found, False
            ended = found
        except NotFound:
            pass
        try:
            machine = await self._get(VMS.path(asked.namespace, asked.name), token)
        except NotFound:
            if ended is not None:
                return ended, True
            raise InvalidQuestion(
                Problem("name", f"there is no VM and no VMI {asked.name} in namespace {asked.namespace}"), status=404
            ) from None
        labels = at(machine, "spec", "template", "metadata", "labels")
        return {"metadata": {"labels": labels if isinstance(labels, dict) else {}}}, True

    async def _namespace(self, name: str, token: str | None) -> dict[str, str]:
        try:
            return dict(at(await self._get(NAMESPACES.path(None, name), token), "metadata", "labels") or {})
        except NotFound:
            raise InvalidQuestion(Problem("namespace", f"there is no namespace {name}"), status=404) from None

    async def _get(self, path: str, token: str | None) -> Json:
        return await self._api.request("GET", path, token=token)

    async def _list(self, resource: Resource, token: str | None) -> list[Json]:
        """All pages; `kind` and `apiVersion`, which lists leave out of their items, are put back."""
        found: list[Json] = []
        query = {"limit": "500"}
        while True:
            page = await self._api.request("GET", resource.path(), query=query, token=token)
            found += ({"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in page["items"])
            more = at(page, "metadata", "continue")
            if not more:
                return found
            query = {**query, "continue": more}

    async def _perhaps(self, resource: Resource, token: str | None) -> list[Json] | None:
        try:
            return await self._list(resource, token)
        except NotFound:
            return []
        except Forbidden:
            return None


def _supposed(document: Json, path: tuple[str, ...]) -> Question:
    labels = at(document, *path)
    return Question(
        namespace=at(document, "metadata", "namespace") or "default",
        name=at(document, "metadata", "name") or at(document, "metadata", "generateName") or "vm",
        labels=labels if labels is not None else {},
    )


def _asked(document: Json) -> Question:
    known = ", ".join(sorted(_FIELDS))
    unknown = [
        Problem(child_path("", key), f"is not a field here; there are {known}") for key in document.keys() - _FIELDS
    ]
    if unknown:
        raise InvalidQuestion(*sorted(unknown))
    policies = document.get("withPolicies") or []
    if not isinstance(policies, list) or len(policies) > POLICIES_LIMIT:
        raise InvalidQuestion(Problem("withPolicies", f"must be a list of at most {POLICIES_LIMIT} policies"))
    if document.get("name") is None:
        raise InvalidQuestion(Problem("name", "is missing; give the name of a VMI"))
    return Question(
        namespace=document.get("namespace") or "default",
        name=document["name"],
        with_labels=document.get("withLabels") or {},
        with_policies=tuple(MIGRATION_POLICY.normalize(each) for each in policies),
    )


def _problems(asked: Question) -> Iterator[Problem]:
    """Names become parts of a path that is called, so nothing is asked before they are known to be names."""
    if not isinstance(asked.namespace, str) or not is_label(asked.namespace):
        yield Problem("namespace", f"must be the name of a namespace, not {quoted(asked.namespace)}")
    if not isinstance(asked.name, str) or not is_subdomain(asked.name.rstrip("-")):
        yield Problem("name", f"must be the name of a VMI, not {quoted(asked.name)}")
    yield from _label_problems(asked.labels, "metadata.labels")
    yield from _label_problems(asked.with_labels, "withLabels")
    for index, each in enumerate(asked.with_policies):
        for problem in (*missing_name(each), *MIGRATION_POLICY.problems(each)):
            path = f"withPolicies[{index}]"
            yield Problem(f"{path}.{problem.path}" if problem.path else path, problem.message)


def _label_problems(labels: Any, path: str) -> Iterator[Problem]:
    if labels is None:
        return
    if not isinstance(labels, dict):
        yield Problem(path, f"must be an object of keys and texts, not {quoted(labels)}")
        return
    for key, value in labels.items():
        if not is_label_key(key):
            yield Problem(child_path(path, key), "is not a label key")
        elif value is not None and not (isinstance(value, str) and is_label_value(value)):
            yield Problem(child_path(path, key), f"is not a label's value: {quoted(value)}")


def _refused(status: int, *problems: Problem, wait: float | None = None) -> Answer:
    return Answer(status, {"problems": [{"path": p.path, "message": p.message} for p in problems]}, wait)
