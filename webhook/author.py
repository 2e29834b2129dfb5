"""May the author of a template have its VMs, and would the API server take one? Two questions, one deadline."""

from __future__ import annotations

import asyncio
import re

from apimachinery.problem import Problem
from runtime import access_review
from runtime.api import Api
from runtime.errors import ApiError, Forbidden, NotFound, QuotaExceeded
from webhook.api_errors import problems_of
from webhook.review import AdmissionRequest, AdmissionResponse
from webhook.template import Template, at_template, changed_template, vm_of

_WE_MAY_NOT = re.compile(r' is forbidden: User "')
"""What the API server says to whoever has no right: here to us, whatever it is that the author may."""


class TemplateReview:
    """`budget_seconds` lies below the webhook's own timeout: a VM's admission happens inside the pool's."""

    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api = api
        self._budget_seconds = budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """On the template that the request brings, if any. Not being able to ask for rights is a no."""
        template = changed_template(request)
        if template is None:
            return AdmissionResponse()
        granted = False
        try:
            async with asyncio.timeout(self._budget_seconds):
                granted = await self._granted(request, template)
                if not granted:
                    return _may_not(request, template)
                return await self._tried(request, template) if template.can_be_tried else AdmissionResponse()
        except (ApiError, TimeoutError) as error:
            if granted:
                return AdmissionResponse(warnings=(f"its template could not be tried as a VM: {_reason(error)}",))
            problem = Problem("", f"whether you may create its VMs could not be asked: {_reason(error)}; try again")
            return AdmissionResponse(problems=(problem,), forbidden=True)

    async def _granted(self, request: AdmissionRequest, template: Template) -> bool:
        question = access_review.subject_access_review(request.user, "create", template.makes, request.namespace)
        return access_review.is_allowed(
            await self._api.request("POST", access_review.SUBJECT_ACCESS_REVIEWS, body=question)
        )

    async def _tried(self, request: AdmissionRequest, template: Template) -> AdmissionResponse:
        try:
            await self._api.create(template.makes, vm_of(request, template), dry_run=True)
        except (QuotaExceeded, NotFound) as error:
            # A quota may be raised and KubeVirt installed before the VMs are made; the template is none the worse.
            return AdmissionResponse(warnings=(f"a VM of its template would be refused now: {error.message}",))
        except ApiError as error:
            problems = tuple(at_template(template, problem) for problem in problems_of(error))
            if not problems or (isinstance(error, Forbidden) and _WE_MAY_NOT.search(error.message)):
                raise
            return AdmissionResponse(problems=problems)
        return AdmissionResponse()


def _may_not(request: AdmissionRequest, template: Template) -> AdmissionResponse:
    who, what = request.user.get("username") or "an unknown user", template.makes.plural
    sentence = f"{who} may not create {what} in namespace {request.namespace}, so neither have them made"
    return AdmissionResponse(problems=(Problem(".".join(template.path), sentence),), forbidden=True)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else "no answer in time"
