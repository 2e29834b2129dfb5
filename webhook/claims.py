"""Checks that the author of a claim may read the Secret whose keys the claim's VM gets.

The controllers read the Secret with their own rights, so a claim must not give its author the content of a Secret that
the author could not read.
"""

import asyncio

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from kinds.claim import CLAIM
from runtime import access_review
from runtime.api import Api
from runtime.errors import ApiError
from runtime.resource import Resource
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse

SECRETS = Resource("", "v1", "secrets", "Secret")
_FIELD = ("spec", "personalization", "sshPublicKeySecret")


class ClaimReview:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Denies the claim if the user may not get the Secret, or if that is unknown."""
        name = at(request.object, *_FIELD)
        # The field cannot be changed later.
        if (request.api_version, request.kind) != (CLAIM.api_version, CLAIM.kind) or not name or request.old:
            return AdmissionResponse()
        user = request.user.get("username") or "an unknown user"
        review = access_review.subject_access_review(request.user, "get", SECRETS, request.namespace, str(name))
        try:
            async with asyncio.timeout(self._budget_seconds):
                answer = await self._api.request("POST", access_review.SUBJECT_ACCESS_REVIEWS, body=review)
        except (ApiError, TimeoutError) as error:
            return _denied(f"cannot determine whether you may get the Secret: {cause_of(error)}; try again")
        if access_review.is_allowed(answer):
            return AdmissionResponse()
        return _denied(f"{user} may not get Secret {name} in namespace {request.namespace}")


def _denied(message: str) -> AdmissionResponse:
    return AdmissionResponse(problems=(Problem(".".join(_FIELD), message),), forbidden=True)
