"""Checks that nobody but the controllers of a virtual node makes claims for Pods.

A claim that a Pod controls counts for the Pod's ServiceAccount, needs `allowPods` of its pool instead of
`allowApplication`, and may name what the Pod's kubelet could mount. So its author must be able to do what kubelets do:
patch the status of the Pod.
"""

import asyncio

from poolhouse.api.apimachinery.owner_references import controlling_pod
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.runtime import access_review
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Resource
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse

PATH = "metadata.ownerReferences"
POD_STATUS = Resource("", "v1", "pods/status", "Pod")


def is_pod_claim(request: AdmissionRequest) -> bool:
    """Whether the request makes a claim that a Pod controls, or gives a claim to another Pod."""
    pod = controlling_pod(request.object or {})
    return request.kind == CLAIM.kind and pod is not None and pod != controlling_pod(request.old or {})


class PodClaimReview:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        pod = controlling_pod(request.object or {})
        if pod is None or not is_pod_claim(request):
            return AdmissionResponse()
        name, user = str(pod.get("name") or ""), request.user.get("username") or "an unknown user"
        review = access_review.subject_access_review(request.user, "patch", POD_STATUS, request.namespace, name)
        try:
            async with asyncio.timeout(self._budget_seconds):
                answer = await self._api.request("POST", access_review.SUBJECT_ACCESS_REVIEWS, body=review)
        except (ApiError, TimeoutError) as error:
            why = f"cannot determine whether you may make a claim for a Pod: {cause_of(error)}; try again"
            return AdmissionResponse(problems=(Problem(PATH, why),), forbidden=True)
        if access_review.is_allowed(answer):
            return AdmissionResponse()
        why = f"{user} may not make a claim that Pod {name} controls: leave out `controller`; a Pod may own a claim"
        return AdmissionResponse(problems=(Problem(PATH, why),), forbidden=True)
