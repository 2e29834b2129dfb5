"""Checks that nobody but the controllers of a virtual node decides which claims belong to Pods.

A claim of a Pod counts for the Pod's ServiceAccount, needs `allowPods` of its pool instead of `allowApplication`, and
may name what the Pod's kubelet could mount. So its author must be able to do what kubelets do: patch the status of the
Pod. The same right is needed to take a claim from its Pod, which would fail and be replaced while its VM still runs.
The garbage collector of Kubernetes, which does so for `--cascade=orphan`, may patch all objects.
"""

import asyncio
from dataclasses import dataclass

from poolhouse.api.apimachinery.owner_references import controlling_pod
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.meta import POD_NAME, POD_UID
from poolhouse.runtime.access_review import user_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Resource
from webhook.api_errors import cause_of
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

OWNERS, ANNOTATIONS = "metadata.ownerReferences", "metadata.annotations"
POD_STATUS = Resource("", "v1", "pods/status", "Pod")


@dataclass(frozen=True)
class NamedPod:
    """A Pod as a claim names it, or only a part of its name and UID."""

    name: str
    uid: str


NOBODY = NamedPod("", "")


def _pods(claim: Json | None) -> tuple[NamedPod, NamedPod]:
    """The Pods that control the claim and that its annotations name, as `controllers/shared/pod_claims.py` reads them.
    Without such a Pod, its name and UID are empty."""
    owner, annotations = controlling_pod(claim or {}) or {}, annotations_of(claim)
    return (
        NamedPod(str(owner.get("name") or ""), str(owner.get("uid") or "")),
        NamedPod(str(annotations.get(POD_NAME) or ""), str(annotations.get(POD_UID) or "")),
    )


def changes_pod(request: AdmissionRequest) -> bool:
    """Whether the request makes a claim for a Pod, gives a claim to another Pod, or takes a claim from its Pod."""
    return request.kind == CLAIM.kind and _pods(request.object) != _pods(request.old)


class PodClaimReview:
    def __init__(self, api: Api, *, budget_seconds: float) -> None:
        self._api, self._budget_seconds = api, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not changes_pod(request):
            return AdmissionResponse()
        pods = {*_pods(request.object), *_pods(request.old)} - {NOBODY}
        for name in sorted({pod.name for pod in pods}):
            if problem := await self._refusal(request, name):
                return AdmissionResponse(problems=(problem,), forbidden=True)
        return AdmissionResponse()

    async def _refusal(self, request: AdmissionRequest, pod: str) -> Problem | None:
        """Why the user may not decide which claims belong to the Pod, or None."""
        try:
            async with asyncio.timeout(self._budget_seconds):
                allowed = await user_may(self._api, request.user, "patch", POD_STATUS, request.namespace, pod)
        except (ApiError, TimeoutError) as error:
            why = f"cannot determine whether you may make a claim for a Pod: {cause_of(error)}; try again"
            return Problem(OWNERS, why)
        return None if allowed else _forbidden(request, pod)


def _forbidden(request: AdmissionRequest, pod: str) -> Problem:
    """What the user may not do, and what to do instead. A claim with the annotation of a UID alone names no Pod."""
    named, user = f"Pod {pod}" if pod else "a Pod", request.username
    if any(each.name == pod for each in _pods(request.old) if each != NOBODY):
        return Problem(OWNERS, f"{user} may not take a claim from {named}: delete the Pod or the claim")
    controlling, _ = _pods(request.object)
    if pod and controlling.name == pod:
        why = f"{user} may not make a claim that {named} controls: leave out `controller`; a Pod may own a claim"
        return Problem(OWNERS, why)
    why = f"{user} may not make a claim that names {named}: leave out the annotations {POD_NAME} and {POD_UID}"
    return Problem(ANNOTATIONS, why)
