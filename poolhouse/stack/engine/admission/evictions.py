"""Decides evictions of launcher Pods as virt-api's webhook does: it denies those of VMIs that migrate, and marks these
VMIs."""

from __future__ import annotations

from dataclasses import dataclass

from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import PODS, VMIS
from poolhouse.stack.engine.objects import VMI, Launcher, read_launcher, read_vmi
from poolhouse.stack.engine.resources import (
    DOMAIN_ANNOTATION,
    EVICTION_SOURCE_ANNOTATION,
    LAUNCHER_LABEL,
)

PATH = "/pod-eviction-validate"
NAME = "virt-launcher-eviction-interceptor.kubevirt.io"
DESCHEDULER = "sigs.k8s.io/descheduler"


@dataclass(frozen=True)
class Verdict:
    denied: str = ""
    """message of the denial; empty if the eviction is allowed"""
    mark: bool = False
    """whether the VMI is to be marked, so that it leaves its node"""


def decide(vmi: VMI, pod: Launcher, settings: ClusterSettings) -> Verdict:
    # Each VMI of the engine can be migrated.
    if (vmi.eviction_strategy or settings.eviction_strategy) in ("", "None"):
        return Verdict()
    text = f'Eviction triggered evacuation of VMI "{vmi.namespace}/{vmi.name}"'
    if vmi.status.get("evacuationNodeName"):
        return Verdict(f"Evacuation in progress: {text}")
    if vmi.node != pod.node:
        return Verdict("Eviction request for target Pod")
    return Verdict(text, mark=True)


def webhook(client: Json) -> Json:
    """The webhook's entry in the configuration. With `client` it reaches the engine."""
    return {
        "name": NAME,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        # As in KubeVirt: while the webhook is away, evictions go on.
        "failurePolicy": "Ignore",
        "timeoutSeconds": 10,
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods/eviction"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [{"name": "only-vms", "expression": 'object.metadata.name.startsWith("virt-launcher")'}],
    }


async def review(api: Api, request: Json, settings: ClusterSettings) -> Json:
    """Returns the response to a request for an eviction. Marks the VMI unless the request is a dry run."""
    namespace, eviction = str(request.get("namespace") or ""), request["object"]
    pod = await find(api, PODS, namespace, str(request.get("name") or ""))
    if pod is None:
        return {"allowed": True}
    name = at(pod, "metadata", "annotations", DOMAIN_ANNOTATION)
    ended = at(pod, "status", "phase") in ("Succeeded", "Failed")
    if at(pod, "metadata", "labels", LAUNCHER_LABEL) != "virt-launcher" or ended or not name:
        return {"allowed": True}
    try:
        vmi = read_vmi(await api.get(VMIS, namespace, str(name)))
        verdict = decide(vmi, read_launcher(pod), settings)
        if verdict.mark and not _is_dry_run(request, eviction):
            await api.patch(VMIS, *vmi.key, _mark(vmi, eviction))
    except ApiError as error:
        verdict = Verdict(f"kubevirt failed marking the vmi for eviction: {error.message}")
    if verdict.denied:
        return {"allowed": False, "status": {"message": verdict.denied, "code": 429}}
    return {"allowed": True}


def _is_dry_run(request: Json, eviction: Json) -> bool:
    return bool(request.get("dryRun")) or bool(at(eviction, "deleteOptions", "dryRun"))


def _mark(vmi: VMI, eviction: Json) -> Json:
    mark: Json = {"metadata": {"uid": vmi.uid}, "status": {"evacuationNodeName": vmi.node}}
    if at(eviction, "metadata", "annotations", "requested-by") == DESCHEDULER:
        mark["metadata"]["annotations"] = {EVICTION_SOURCE_ANNOTATION: "descheduler"}
    return mark
