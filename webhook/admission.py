"""Decides admission requests: selects the handler by kind, and skips requests that need no check.

The webhook checks Poolhouse's own kinds before the API server validates their schema. One denial therefore reports
every problem, including wrong types.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from defaulter.contract import excessive_sizes
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import by_gvk
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.meta import DEFAULTING, DISABLED, REQUESTER
from poolhouse.service.cpu_lane import compute
from poolhouse.service.request_body import RequestRefused
from webhook.defaulting import DEFAULTED_KINDS
from webhook.hardware_drift import HardwareDrift
from webhook.patch import same
from webhook.pod_claims import changes_pod
from webhook.reasons import AdmissionReason
from webhook.replica_limits import is_scale
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of, denied_or_tolerated

SKIPPED = AdmissionResponse(reason=AdmissionReason.SKIPPED)
REQUESTER_WARNING = (
    f"metadata.annotations[{REQUESTER}]: the API server's user name is kept; the annotation records who made the claim"
)


class AdmissionHandler(Protocol):
    """Decides one aspect of a request, with calls to other services."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse: ...


class ReplicaLimit(AdmissionHandler, Protocol):
    """Limits replicas, in objects of our kinds and in Scales of their subresource."""

    async def problems(self, request: AdmissionRequest) -> tuple[Problem, ...]: ...


class Admission:
    def __init__(
        self,
        *,
        defaulting: AdmissionHandler,
        checks: Sequence[AdmissionHandler],
        limit: ReplicaLimit | None = None,
        drift: HardwareDrift | None = None,
    ) -> None:
        """`checks` and `limit` run at the same time for objects of our kinds that pass the checks of their kind. At
        most one of them changes the object. An object that does not pass is denied with what `limit` finds, too.
        `drift` is None without a defaulter."""
        self._defaulting, self._limit, self._drift = defaulting, limit, drift
        self._checks = checks if limit is None else (limit, *checks)

    async def mutate(self, request: AdmissionRequest) -> AdmissionResponse:
        response, is_final = await compute(self._begin, request)
        if is_final:
            return response
        if response.problems:
            above = await self._limit.problems(request) if self._limit is not None else ()
            return replace(response, problems=(*response.problems, *above))
        return await (self._default if is_defaulted(request) else self._check)(request, response)

    async def admit(self, request: AdmissionRequest) -> AdmissionResponse:
        """Decides a request after all mutating webhooks have changed the object."""
        if self._limit is not None and is_scale(request):
            return await self._limit.handle(request)
        return await compute(self.validate, request)

    def validate(self, request: AdmissionRequest) -> AdmissionResponse:
        """Decides a request that is not for a scale subresource, without calls to other services."""
        if (decided := decide_at_once(request)) is not None:
            return decided
        if is_defaulted(request):
            return self._drift.check(request) if self._drift is not None else SKIPPED
        kind = by_gvk(request.api_version, request.kind)
        return _unknown_kind(request) if kind is None else replace(validate_kind(request, kind), object=None)

    def _begin(self, request: AdmissionRequest) -> tuple[AdmissionResponse, bool]:
        """What `mutate` knows without calls to other services, and whether it is the answer."""
        if (decided := decide_at_once(request)) is not None:
            return decided, True
        if is_defaulted(request):
            # The objectSelector of the configuration excludes such objects too, unless a user has changed it.
            if at(request.object, "metadata", "labels", DEFAULTING) == DISABLED:
                return SKIPPED, True
            return (self._drift.since_answer(request) if self._drift is not None else AdmissionResponse()), False
        kind = by_gvk(request.api_version, request.kind)
        if kind is None:
            return _unknown_kind(request), True
        if kind.namespaced and not request.namespace:
            raise RequestRefused(400, f"request.namespace: is required for a {kind.kind}")
        response = validate_kind(request, kind)
        return (response if response.problems else complete(request, response, kind)), False

    async def _default(self, request: AdmissionRequest, found: AdmissionResponse) -> AdmissionResponse:
        response = await self._defaulting.handle(request)
        if found.drift is not None:
            # What another webhook changed is not remembered, so that the next request with the change is reported, too.
            return replace(response, warnings=(*response.warnings, *found.warnings), drift=found.drift)
        if self._drift is not None and response.object is not None:
            self._drift.remember(request, response.object)
        return response

    async def _check(self, request: AdmissionRequest, response: AdmissionResponse) -> AdmissionResponse:
        given = replace(request, object=response.object)
        found = await asyncio.gather(*(check.handle(given) for check in self._checks))
        problems = tuple(problem for each in found for problem in each.problems)
        warnings = (*response.warnings, *(warning for each in found for warning in each.warnings))
        if problems:
            forbidden = any(each.forbidden for each in found)
            return AdmissionResponse(problems=problems, warnings=warnings, forbidden=forbidden)
        changed = (each.object for each in found if each.object is not None)
        return replace(response, object=next(changed, response.object), warnings=warnings)


def is_defaulted(request: AdmissionRequest) -> bool:
    """Whether the object is of a kind with hardware defaults."""
    return (request.api_version, request.kind) in DEFAULTED_KINDS


def decide_at_once(request: AdmissionRequest) -> AdmissionResponse | None:
    """The response to a request that needs no check, or whose object is too large for the other checks. None for all
    other requests."""
    if skip_reason(request):
        return SKIPPED
    problems = excessive_sizes(request.object or {})
    return AdmissionResponse(problems=tuple(problems)) if problems else None


def skip_reason(request: AdmissionRequest) -> str | None:
    """Why the request needs no check; None if it needs a check. Status updates, deletions, and changes of labels or
    finalizers must succeed even if the spec is invalid under current rules."""
    if request.operation not in ("CREATE", "UPDATE"):
        return f"{request.operation} does not change the spec"
    if request.subresource:
        return f"the subresource {request.subresource} does not change the spec"
    if request.old is not None and at(request.object, "metadata", "deletionTimestamp"):
        return "the object is being deleted"
    if (
        request.operation == "UPDATE"
        and request.old is not None
        and same(request.old.get("spec"), (request.object or {}).get("spec"))
        and not _spec_annotations_changed(request)
        and not changes_pod(request)
    ):
        return "the spec does not change"
    return None


def _spec_annotations_changed(request: AdmissionRequest) -> bool:
    kind = by_gvk(request.api_version, request.kind)
    before, after = annotations_of(request.old), annotations_of(request.object)
    return any(before.get(name) != after.get(name) for name in (kind.spec_annotations if kind else ()))


def _unknown_kind(request: AdmissionRequest) -> AdmissionResponse:
    """Allows an object of an unknown kind, because the webhook configurations may be newer than this process."""
    warning = f"this version of poolhouse does not know {request.kind} of {request.api_version}"
    return AdmissionResponse(warnings=(warning,), reason=AdmissionReason.SKIPPED)


def validate_kind(request: AdmissionRequest, kind: Kind) -> AdmissionResponse:
    """Runs the checks that the kind declares, and normalizes the object."""
    document = kind.keep_replicas(kind.normalize(request.object or {}), request.old)
    stored = kind.problems(kind.normalize(request.old)) if request.old is not None else ()
    response = denied_or_tolerated(kind.problems(document), stored)
    forbidden_changes = kind.validate_update(request.old, document)
    warnings = (*response.warnings, *kind.warnings(document))
    if response.problems or forbidden_changes:
        return AdmissionResponse(problems=(*response.problems, *forbidden_changes), warnings=warnings)
    return AdmissionResponse(object=document, warnings=warnings, reason=response.reason)


def complete(request: AdmissionRequest, response: AdmissionResponse, kind: Kind) -> AdmissionResponse:
    """Completes a valid object at creation, and records the user's name if the kind requires it. An update that changes
    the name is corrected and not denied, because clients that replace whole objects drop it by accident."""
    document = response.object or request.object or {}
    if request.old is None:
        document = kind.on_create(document)
    if not kind.records_requester:
        return replace(response, object=document)
    given = annotations_of(document)
    user = request.user.get("username") if request.old is None else annotations_of(request.old).get(REQUESTER)
    if request.old is None and changes_pod(request):
        # The controllers name the account of the Pod. A check refuses other authors.
        user = given.get(REQUESTER)
    wanted = {key: value for key, value in given.items() if key != REQUESTER}
    if isinstance(user, str) and user:
        wanted[REQUESTER] = user
    response = replace(response, object=document)
    if wanted == given:
        return response
    corrected = {**document, "metadata": {**document["metadata"], "annotations": wanted}}
    overwritten = given.get(REQUESTER) not in (None, user)
    warnings = (*response.warnings, REQUESTER_WARNING) if overwritten else response.warnings
    return replace(response, object=corrected, warnings=warnings)
