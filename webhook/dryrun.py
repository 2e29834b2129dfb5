"""Determines what admission would decide about an object, without storing the object.

If the webhook itself finds problems, the response contains all of them. Otherwise the API server decides a dry run with
the caller's token. The dry run includes every webhook, quota and policy that applies to the caller's requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from defaulter.contract import (
    DefaulterClient,
    DefaulterUnavailable,
    InvalidDocument,
    UndecidedDocument,
    excessive_sizes,
)
from poolhouse.api.apimachinery.problem import Problem, format_path
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import by_gvk
from poolhouse.api.kinds.checks.metadata import INVALID_NAMESPACE, is_label, is_subdomain
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kubevirt.fields import VM_SPEC, VMI_SPEC
from poolhouse.api.kubevirt.fields import unknown_fields as unknown_kubevirt_fields
from poolhouse.runtime.access_review import caller_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import VMIS, VMS, Resource
from poolhouse.service.cpu_lane import compute
from webhook.api_errors import problems_of, query_error, unknown_fields
from webhook.defaulting import problems_in
from webhook.models import DryRunResponse, PlanStep, QueryError
from webhook.plans import PlanClient

Operation = Literal["create", "update"]

VERBS: Mapping[Operation, tuple[str, ...]] = {"create": ("create",), "update": ("get", "update")}
"""Verbs on the object for which the caller needs the right."""

LIBVIRT_VM = ("kubevirt.io/v1alpha1", "VM")
"""API version and kind of the VM with a libvirt domain as spec. No API server serves this kind."""

KUBEVIRT_TYPES = {VMS.kind: VM_SPEC, VMIS.kind: VMI_SPEC}
KUBEVIRT = {(resource.api_version, resource.kind): resource for resource in (VMS, VMIS)}


@dataclass(frozen=True)
class Target:
    document: Json
    resource: Resource
    kind: Kind | None
    """The declaration of the kind; None for KubeVirt's kinds."""

    @property
    def namespace(self) -> str:
        return (typed(str, self.document, "metadata", "namespace") or "default") if self.resource.namespaced else ""


def parse_target(document: Json) -> Target | None:
    """The target of a document; None for a kind that Poolhouse does not check. Raises `QueryError` if invalid."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise QueryError(400, Problem("", "the body must be a Kubernetes object, with apiVersion and kind"))
    if (api_version, kind) == LIBVIRT_VM:
        return Target(document, VMS, None)
    if resource := KUBEVIRT.get((api_version, kind)):
        return Target(document, resource, None)
    ours = by_gvk(api_version, kind)
    if ours is None:
        return None
    group, _, version = api_version.rpartition("/")
    return Target(document, Resource(group, version, ours.plural, ours.kind, ours.namespaced), ours)


def local_problems(target: Target, operation: Operation) -> tuple[Problem, ...]:
    """Problems that the webhook finds without the API server. Checks names, because URL paths contain them."""
    metadata = target.document.get("metadata")
    if not isinstance(metadata, dict):
        return (Problem("metadata", "must be an object with a name"),)
    if excessive := excessive_sizes(target.document):
        return tuple(excessive)
    found = []
    is_text = isinstance(metadata.get("namespace", ""), str)
    if not is_text or (target.resource.namespaced and not is_label(target.namespace)):
        found.append(Problem("metadata.namespace", INVALID_NAMESPACE))
    if operation == "update" and not (isinstance(name := metadata.get("name"), str) and is_subdomain(name)):
        found.append(Problem("metadata.name", "must be the name of the object to update"))
    if target.kind is not None:
        found += target.kind.problems(target.kind.normalize(target.document))
    return tuple(dict.fromkeys(found))


async def authenticate(caller: Api) -> None:
    """Raises `QueryError` if the API server does not know the caller's token. Nobody else learns what is wrong with a
    document."""
    try:
        await caller_may(caller, "get", VMS, "default")
    except ApiError as error:
        raise query_error(error) from None


@dataclass
class DryRun:
    defaulter: DefaulterClient
    seed: str
    plans: PlanClient | None = None

    async def answer(self, document: Json, caller: Api, operation: Operation = "create") -> DryRunResponse:
        """The decision about a document. `caller` has the caller's credentials. Raises `QueryError` if there is
        none."""
        try:
            target = parse_target(document)
        except QueryError:
            await authenticate(caller)
            raise
        if target is None:
            await authenticate(caller)
            return _denied(Problem("kind", f"poolhouse does not check this kind: {document['kind']!r:.80}"))
        try:
            await self._authorize(target, caller, operation)
            problems = await compute(local_problems, target, operation)
            if problems:
                warnings = target.kind.warnings(target.document) if target.kind is not None else ()
                return _denied(*problems, warnings=tuple(warnings))
            if target.document["kind"] == LIBVIRT_VM[1]:
                return await self._default_libvirt_vm(target)
            return await self._at_api_server(target, caller, operation)
        except ApiError as error:
            raise query_error(error) from None

    async def _authorize(self, target: Target, caller: Api, operation: Operation) -> None:
        for verb in VERBS[operation]:
            if not await caller_may(caller, verb, target.resource, target.namespace):
                where = f" in namespace {target.namespace}" if target.namespace else ""
                raise QueryError(403, Problem("", f"you may not {verb} {target.resource.plural}{where}"))

    async def _default_libvirt_vm(self, target: Target) -> DryRunResponse:
        try:
            done = await self.defaulter.complete(target.document, namespace=target.namespace, seed=self.seed or None)
        except InvalidDocument as refusal:
            return _denied(*problems_in(refusal))
        except UndecidedDocument as error:
            raise QueryError(501, Problem("", f"the defaulter cannot decide: {error.reason}")) from None
        except DefaulterUnavailable as error:
            problem = Problem("", f"the defaulter is unavailable: {error.reason}")
            raise QueryError(503, problem, retry_after_seconds=1) from None
        return _allowed(done.object, done.warnings)

    async def _at_api_server(self, target: Target, caller: Api, operation: Operation) -> DryRunResponse:
        warnings: list[str] = []
        try:
            stored = await self._send(target, caller, operation, warnings)
        except ApiError as error:
            problems = problems_of(error)
            if not problems:
                raise
            if unknown := unknown_fields(error):
                # Strict decoding stops before admission, whose problems belong to the same answer.
                further = await self._problems_beside_unknown_fields(target, caller, operation, warnings)
                problems = (*(_with_nearest(target, problem) for problem in unknown), *further)
            return _denied(*dict.fromkeys(problems), warnings=tuple(dict.fromkeys(warnings)))
        # The field managers of a dry run describe the request, not the object.
        stored.get("metadata", {}).pop("managedFields", None)
        if self.plans is None or target.kind is None or not target.kind.plan_path:
            return _allowed(stored, warnings)
        answer = await self.plans.plan(target.kind, stored, await caller.authorization() or "")
        plan = {} if answer.steps is None else {"plan": answer.steps}
        return _allowed(stored, (*warnings, *answer.warnings), **plan)

    async def _problems_beside_unknown_fields(
        self, target: Target, caller: Api, operation: Operation, warnings: list[str]
    ) -> tuple[Problem, ...]:
        try:
            await self._send(target, caller, operation, warnings, field_validation="Ignore")
        except ApiError as error:
            return problems_of(error)
        return ()

    async def _send(
        self,
        target: Target,
        caller: Api,
        operation: Operation,
        warnings: list[str],
        *,
        field_validation: Literal["Strict", "Ignore"] = "Strict",
    ) -> Json:
        query = {"dryRun": "All", "fieldValidation": field_validation}
        body = target.document
        if operation == "create":
            path = target.resource.path(target.namespace)
            return await caller.request("POST", path, body=body, query=query, warnings=warnings)
        path = target.resource.path(target.namespace, str(at(body, "metadata", "name") or ""))
        if not at(body, "metadata", "resourceVersion"):
            stored = await caller.request("GET", path)
            version = at(stored, "metadata", "resourceVersion")
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return await caller.request("PUT", path, body=body, query=query, warnings=warnings)


def _with_nearest(target: Target, problem: Problem) -> Problem:
    """The problem of an unknown field of KubeVirt's kinds, with the name of the most similar field."""
    type_name = KUBEVIRT_TYPES.get(target.resource.kind) if target.kind is None else None
    spec = target.document.get("spec")
    for field in unknown_kubevirt_fields(spec, type_name, ("spec",)) if type_name is not None else ():
        if field.nearest and format_path(field.path) == problem.path:
            return Problem(problem.path, f'{problem.message}; did you mean "{field.nearest}"?')
    return problem


def _denied(*problems: Problem, warnings: tuple[str, ...] = ()) -> DryRunResponse:
    return DryRunResponse(allowed=False, problems=problems, warnings=warnings, object=None)


def _allowed(document: Json, warnings: Iterable[str], **plan: list[PlanStep]) -> DryRunResponse:
    """The response that allows an object. It sets every field but `plan`, because unset fields are omitted."""
    return DryRunResponse(allowed=True, problems=(), warnings=tuple(warnings), object=document, **plan)
