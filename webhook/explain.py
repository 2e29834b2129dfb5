"""Explains which migration policy applies to a VM and why, or which would apply under assumptions.

All objects are read with the caller's token, so a caller without rights on policies learns nothing about policies. A
request is a VirtualMachine or VirtualMachineInstance, which need not exist, or an `ExplainRequest` that names an
existing one.
`poolhouse policy explain` uses this module without the webhook.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.metadata import is_label, is_label_key, is_label_value, is_subdomain
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.validation import child_path, path_to, quoted
from poolhouse.api.kubevirt.cluster_settings import choose
from poolhouse.api.migrationpolicies.conflicts import conflicts, missing_name
from poolhouse.api.migrationpolicies.explanation import ClusterState, explain
from poolhouse.api.migrationpolicies.precedence import is_active, ranked_policy
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import KUBEVIRTS, NAMESPACES, UPSTREAM_POLICIES, VMIS, VMS, Resource
from webhook.models import ExplainRequest, QueryError

POLICIES = Resource.of(MIGRATION_POLICY)


@dataclass(frozen=True)
class Question:
    namespace: str
    name: str
    labels: Mapping[str, str] | None = None
    """Labels to assume; None for the labels of the existing VMI."""
    with_labels: Mapping[str, str | None] = field(default_factory=dict)
    with_policies: tuple[Json, ...] = ()

    @property
    def supposes(self) -> bool:
        """Whether the question is about assumed labels or policies."""
        return bool(self.with_labels or self.with_policies or self.labels is not None)


def parse_question(document: Json) -> Question:
    """Parses a request. Raises `QueryError` if the request is invalid."""
    match document.get("kind"):
        case "VirtualMachineInstance":
            question = _about_object(document, ("metadata", "labels"))
        case "VirtualMachine":
            question = _about_object(document, ("spec", "template", "metadata", "labels"))
        case _:
            question = _about_name(document)
    problems = tuple(_problems(question))
    if problems:
        raise QueryError(400, *problems)
    return question


class PolicyExplainer:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def explain(self, question: Question) -> Json:
        """An `ExplainResponse` as JSON. Raises `QueryError` and `ApiError`."""
        (vmi, halted), namespace_labels, state = await asyncio.gather(
            self._vmi(question), self._namespace_labels(question.namespace), self.cluster_state()
        )
        state = state.with_policies(question.with_policies)
        if refused := tuple(_conflicts(question, state)):
            raise QueryError(400, *refused)
        given = question.labels if question.labels is not None else at(vmi, "metadata", "labels") or {}
        labels = {key: value for key, value in {**given, **question.with_labels}.items() if value is not None}
        return {
            "namespace": question.namespace,
            "name": question.name,
            **explain(labels, namespace_labels, state),
            "stamped": at(vmi, "metadata", "labels", meta.MIGRATION_POLICY),
            "halted": halted,
            "supposed": question.supposes,
        }

    async def explain_by_label(self, question: Question, error: Forbidden) -> Json:
        """The answer for a user who may get the VMI, and not what decides about it: a RoleBinding gives no right to
        list policies. Raises the error if no label of a VMI has the answer."""
        vmi, halted = ({}, True) if question.supposes else await self._vmi(question)
        if halted:
            raise error
        name = at(vmi, "metadata", "labels", meta.MIGRATION_POLICY)
        return {
            "namespace": question.namespace,
            "name": question.name,
            "policy": name,
            "reason": f"the label {meta.MIGRATION_POLICY} of its VMI names {'it' if name else 'none'}",
            "candidates": [],
            "others": [],
            "settings": {},
            "notes": [f"{error.message}: you cannot see the other policies and the settings"],
            "stamped": name,
            "halted": False,
            "supposed": False,
        }

    async def cluster_state(self) -> ClusterState:
        """Reads the policies and KubeVirt's objects. Raises if policies cannot be read; the rest may be unreadable."""
        policies, upstream, kubevirts = await asyncio.gather(
            self._list(POLICIES),
            self._list_if_readable(UPSTREAM_POLICIES),
            self._list_if_readable(KUBEVIRTS),
        )
        read = {"KubeVirt's own migration policies": upstream, "KubeVirt's configuration": kubevirts}
        unread = tuple(what for what, found in read.items() if found is None)
        return ClusterState(tuple(policies), choose(kubevirts or ()) or {}, upstream, unread, self._api.now())

    async def _vmi(self, question: Question) -> tuple[Json, bool]:
        """The VMI and False. For a halted VM, or a VM whose VMI has ended, the VMI of the VM's template and True."""
        if question.labels is not None:
            return {}, False
        path = (question.namespace, question.name)
        ended: Json | None = None
        try:
            ended = await self._api.request("GET", VMIS.path(*path))
            if is_active(ended):
                return ended, False
        except NotFound:
            pass
        try:
            vm = await self._api.request("GET", VMS.path(*path))
        except NotFound:
            if ended is not None:
                return ended, True
            message = f"namespace {question.namespace} has no VM and no VMI {question.name}"
            raise QueryError(404, Problem("name", message)) from None
        labels = at(vm, "spec", "template", "metadata", "labels")
        return {"metadata": {"labels": labels if isinstance(labels, dict) else {}}}, True

    async def _namespace_labels(self, name: str) -> dict[str, str]:
        try:
            namespace = await self._api.request("GET", NAMESPACES.path(None, name))
        except NotFound:
            raise QueryError(404, Problem("namespace", f"there is no namespace {name}")) from None
        return dict(at(namespace, "metadata", "labels") or {})

    async def _list(self, resource: Resource) -> list[Json]:
        """All objects of a resource. Adds `kind` and `apiVersion`, which items of a list lack."""
        found: list[Json] = []
        query = {"limit": "500"}
        while True:
            page = await self._api.request("GET", resource.path(), query=query)
            found += ({"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in page["items"])
            more = at(page, "metadata", "continue")
            if not more:
                return found
            query = {**query, "continue": more}

    async def _list_if_readable(self, resource: Resource) -> list[Json] | None:
        """All objects; None if the caller may not list them, empty if the cluster does not serve the resource."""
        try:
            return await self._list(resource)
        except NotFound:
            return []
        except Forbidden:
            return None


_FIELDS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


def _about_object(document: Json, path: tuple[str, ...]) -> Question:
    kind = document["kind"]
    problems = [
        Problem(child_path("", name), f"is no field of a {kind}: to ask about an existing one, leave out kind")
        for name in sorted(document.keys() - _FIELDS)
    ]
    version = document.get("apiVersion", VMS.api_version)
    if not isinstance(version, str) or not version.startswith(f"{VMS.group}/"):
        problems.append(Problem("apiVersion", f"must be {VMS.api_version}, not {quoted(version)}"))
    for name in ("metadata", "spec"):
        if not isinstance(found := document.get(name, {}), dict):
            problems.append(Problem(name, f"must be an object, not {quoted(found)}"))
    if "metadata" not in document:
        problems.append(Problem("metadata", f"is required in a {kind}"))
    if problems:
        raise QueryError(400, *problems)
    labels = at(document, *path)
    return Question(
        namespace=at(document, "metadata", "namespace") or "default",
        name=at(document, "metadata", "name") or at(document, "metadata", "generateName") or "vm",
        labels=labels if labels is not None else {},
    )


def _about_name(document: Json) -> Question:
    try:
        request = ExplainRequest.model_validate(document)
    except ValidationError as invalid:
        problems = [Problem(path_to(error["loc"]), error["msg"]) for error in invalid.errors(include_url=False)]
        raise QueryError(400, *sorted(set(problems))) from None
    return Question(
        namespace=request.namespace or "default",
        name=request.name,
        with_labels=request.with_labels or {},
        with_policies=tuple(MIGRATION_POLICY.normalize(each) for each in request.with_policies or ()),
    )


def _problems(question: Question) -> Iterator[Problem]:
    """Problems of names. Call it before requests to the API server, because URL paths contain the names."""
    if not isinstance(question.namespace, str) or not is_label(question.namespace):
        yield Problem("namespace", f"must be the name of a namespace, not {quoted(question.namespace)}")
    if not isinstance(question.name, str) or not is_subdomain(question.name.rstrip("-")):
        yield Problem("name", f"must be the name of a VMI, not {quoted(question.name)}")
    yield from _label_problems(question.labels, "metadata.labels")
    yield from _label_problems(question.with_labels, "withLabels")
    for index, each in enumerate(question.with_policies):
        for problem in (*missing_name(each), *MIGRATION_POLICY.problems(each)):
            yield _within(index, problem)


def _conflicts(question: Question, state: ClusterState) -> Iterator[Problem]:
    """The assumed policies that admission would refuse, because other policies have their selectors."""
    there = [ranked_policy(each) for each in state.policies] if question.with_policies else []
    for index, each in enumerate(question.with_policies):
        for problem in conflicts(ranked_policy(each), there):
            yield _within(index, problem)


def _within(index: int, problem: Problem) -> Problem:
    path = f"withPolicies[{index}]"
    return Problem(f"{path}.{problem.path}" if problem.path else path, problem.message)


def _label_problems(labels: Any, path: str) -> Iterator[Problem]:
    if labels is None:
        return
    if not isinstance(labels, dict):
        yield Problem(path, f"must be an object with string values, not {quoted(labels)}")
        return
    for key, value in labels.items():
        if not is_label_key(key):
            yield Problem(child_path(path, key), "is not a valid label key")
        elif value is not None and not (isinstance(value, str) and is_label_value(value)):
            yield Problem(child_path(path, key), f"must be a valid label value, not {quoted(value)}")
