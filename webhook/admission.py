"""From a request to its verdict: who is asked, and who is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from apimachinery.unstructured import at
from kinds import by_gvk
from kinds.claim import CLAIM
from kinds.kind import Kind
from kinds.meta import DEFAULTING, DISABLED
from webhook import claims, declared, defaulting
from webhook.hardware_drift import HardwareDrift
from webhook.review import SKIPPED, AdmissionRequest, AdmissionResponse
from webhook.scope import skip_reason


class AdmissionHandler(Protocol):
    """Knows something about a request that takes asking others."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse: ...


class Admission:
    """`judges` are for kinds of ours, and asked only about an object without a problem of its own. Without `late`,
    where nobody decides hardware, nothing is said about it either."""

    def __init__(
        self, *, ask: AdmissionHandler, judges: Sequence[AdmissionHandler], late: HardwareDrift | None = None
    ) -> None:
        self._ask = ask
        self._late = late
        self._judges = judges

    async def mutate(self, request: AdmissionRequest) -> AdmissionResponse:
        """The object as it should be stored."""
        if skip_reason(request):
            return AdmissionResponse(reason=SKIPPED)
        if (request.api_version, request.kind) in defaulting.KINDS:
            # The API server's selectors see to it as well, unless somebody edited them.
            opted_out = at(request.object, "metadata", "labels", DEFAULTING) == DISABLED
            return AdmissionResponse(reason=SKIPPED) if opted_out else await self._hardware(request)
        kind = by_gvk(request.api_version, request.kind)
        return _unknown(request) if kind is None else await self._ours(request, kind)

    def validate(self, request: AdmissionRequest) -> AdmissionResponse:
        """Whether it may be stored, once every other webhook has changed what it wanted to."""
        if skip_reason(request):
            return AdmissionResponse(reason=SKIPPED)
        if (request.api_version, request.kind) in defaulting.KINDS:
            return self._late.check(request) if self._late is not None else AdmissionResponse(reason=SKIPPED)
        kind = by_gvk(request.api_version, request.kind)
        return _unknown(request) if kind is None else replace(declared.validate_kind(request, kind), object=None)

    async def _hardware(self, request: AdmissionRequest) -> AdmissionResponse:
        verdict = await self._ask.handle(request)
        if self._late is not None and verdict.object is not None:
            self._late.remember(request, verdict.object)
        return verdict

    async def _ours(self, request: AdmissionRequest, kind: Kind) -> AdmissionResponse:
        verdict = declared.validate_kind(request, kind)
        if verdict.problems:
            return verdict
        if kind is CLAIM:
            verdict = claims.complete_claim(request, verdict)
        for judge in self._judges:
            further = await judge.handle(replace(request, object=verdict.object))
            if further.problems:
                return further
            verdict = replace(verdict, warnings=(*verdict.warnings, *further.warnings))
        return verdict


def _unknown(request: AdmissionRequest) -> AdmissionResponse:
    """Rules in the cluster may be newer than this process. It has nothing to say about what it does not know."""
    return AdmissionResponse(warnings=(f"poolhouse knows no {request.kind} of {request.api_version}",), reason=SKIPPED)
