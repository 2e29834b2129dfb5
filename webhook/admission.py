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
from webhook.late import Late
from webhook.review import SKIPPED, Request, Verdict
from webhook.scope import left_alone


class Judge(Protocol):
    """Knows something about a request that takes asking others."""

    async def verdict(self, request: Request) -> Verdict: ...


class Admission:
    """`judges` are for kinds of ours, and asked only about an object without a problem of its own. Without `late`,
    where nobody decides hardware, nothing is said about it either."""

    def __init__(self, *, ask: Judge, judges: Sequence[Judge], late: Late | None = None) -> None:
        self._ask = ask
        self._late = late
        self._judges = judges

    async def mutate(self, request: Request) -> Verdict:
        """The object as it should be stored."""
        if left_alone(request):
            return Verdict(news=SKIPPED)
        if (request.api_version, request.kind) in defaulting.KINDS:
            # The API server's selectors see to it as well, unless somebody edited them.
            opted_out = at(request.object, "metadata", "labels", DEFAULTING) == DISABLED
            return Verdict(news=SKIPPED) if opted_out else await self._hardware(request)
        kind = by_gvk(request.api_version, request.kind)
        return _unknown(request) if kind is None else await self._ours(request, kind)

    def validate(self, request: Request) -> Verdict:
        """Whether it may be stored, once every other webhook has changed what it wanted to."""
        if left_alone(request):
            return Verdict(news=SKIPPED)
        if (request.api_version, request.kind) in defaulting.KINDS:
            return self._late.verdict(request) if self._late is not None else Verdict(news=SKIPPED)
        kind = by_gvk(request.api_version, request.kind)
        return _unknown(request) if kind is None else replace(declared.examined(request, kind), object=None)

    async def _hardware(self, request: Request) -> Verdict:
        verdict = await self._ask.verdict(request)
        if self._late is not None and verdict.object is not None:
            self._late.answered(request, verdict.object)
        return verdict

    async def _ours(self, request: Request, kind: Kind) -> Verdict:
        verdict = declared.examined(request, kind)
        if verdict.problems:
            return verdict
        if kind is CLAIM:
            verdict = claims.completed(request, verdict)
        for judge in self._judges:
            further = await judge.verdict(replace(request, object=verdict.object))
            if further.problems:
                return further
            verdict = replace(verdict, warnings=(*verdict.warnings, *further.warnings))
        return verdict


def _unknown(request: Request) -> Verdict:
    """Rules in the cluster may be newer than this process. It has nothing to say about what it does not know."""
    return Verdict(warnings=(f"poolhouse knows no {request.kind} of {request.api_version}",), news=SKIPPED)
