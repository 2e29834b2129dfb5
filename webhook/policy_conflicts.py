"""Policies that stand in each other's way: the same selectors twice, and overlaps that only the tie-break decides.

They are compared with what the API server has at this moment, so the only policy that is missed is one created in the
same moment. The controller then sees both, and never applies the younger.
"""

from __future__ import annotations

import asyncio

from apimachinery.unstructured import at
from kinds.policy import POLICY
from kinds.policy_checks import contender, rivals, ties
from kinds.precedence import Contender
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import Resource
from webhook.review import AdmissionRequest, AdmissionResponse

POLICIES = Resource(POLICY.group, POLICY.versions[0], POLICY.plural, POLICY.kind, POLICY.namespaced)


class PolicyConflicts:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api = api
        self._budget_seconds = budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """On the selectors that a policy's request brings, if they are new."""
        if (request.api_version, request.kind) != (POLICY.api_version, POLICY.kind):
            return AdmissionResponse()
        asked = contender(request.object)
        asked = Contender(asked.name or request.name, asked.selectors)
        # What is there already is the controller's to judge: its author must still be able to change the rest of it.
        if not asked.selectors or (request.old is not None and contender(request.old).selectors == asked.selectors):
            return AdmissionResponse()
        try:
            async with asyncio.timeout(self._budget_seconds):
                others, _ = await self._api.list(POLICIES)
        except (ApiError, TimeoutError) as error:
            why = error.message if isinstance(error, ApiError) else "no answer in time"
            return AdmissionResponse(
                warnings=(
                    f"spec.selectors: could not be compared with those of other policies ({why}); if another one has "
                    "the same, this one is never applied, and says so in its condition Active",
                )
            )
        there = [contender(each) for each in others if not at(each, "metadata", "deletionTimestamp")]
        problems = tuple(rivals(asked, there))
        return (
            AdmissionResponse(problems=problems) if problems else AdmissionResponse(warnings=tuple(ties(asked, there)))
        )
