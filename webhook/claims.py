"""Checks that the author of a claim may read the Secrets whose contents the claim's VM gets.

The controllers read the Secrets with their own rights, so a claim must not give its author the content of a Secret that
the author could not read.
"""

import asyncio
from collections.abc import Iterator

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.runtime import access_review
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import SECRETS
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse


class ClaimReview:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Denies the claim if the user may not get one of the Secrets, or if that is unknown."""
        # The fields cannot be changed later.
        if (request.api_version, request.kind) != (CLAIM.api_version, CLAIM.kind) or request.old:
            return AdmissionResponse()
        paths: dict[str, str] = {}
        for path, name in secrets(request.object):
            paths.setdefault(name, path)
        if not paths:
            return AdmissionResponse()
        user = request.user.get("username") or "an unknown user"
        try:
            async with asyncio.timeout(self._budget_seconds):
                allowed = await asyncio.gather(*(self._may_get(request, name) for name in paths))
        except (ApiError, TimeoutError) as error:
            why = f"cannot determine whether you may get the Secret: {cause_of(error)}; try again"
            return AdmissionResponse(problems=(Problem(next(iter(paths.values())), why),), forbidden=True)
        problems = tuple(
            Problem(path, f"{user} may not get Secret {name} in namespace {request.namespace}")
            for (name, path), may in zip(paths.items(), allowed, strict=True)
            if not may
        )
        return AdmissionResponse(problems=problems, forbidden=bool(problems))

    async def _may_get(self, request: AdmissionRequest, name: str) -> bool:
        review = access_review.subject_access_review(request.user, "get", SECRETS, request.namespace, name)
        return access_review.is_allowed(
            await self._api.request("POST", access_review.SUBJECT_ACCESS_REVIEWS, body=review)
        )


def secrets(claim: Json | None) -> Iterator[tuple[str, str]]:
    """The path and the name of each Secret that a claim names. The claim has been validated."""
    if name := at(claim, "spec", "personalization", "sshPublicKeySecret"):
        yield "spec.personalization.sshPublicKeySecret", str(name)
    for number, container in entries(claim, "spec", "application", "containers"):
        for index, variable in entries(container, "env"):
            if name := at(variable, "valueFrom", "secretKeyRef", "name"):
                path = f"spec.application.containers[{number}].env[{index}].valueFrom.secretKeyRef.name"
                yield path, str(name)
