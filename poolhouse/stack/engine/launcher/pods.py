"""Decides which launcher Pods a VMI has, and whether they are ready.

The guest does not run in these Pods. They are what drains, PodDisruptionBudgets and Services see of a VMI.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import KUBEVIRT_CREATED_BY
from poolhouse.runtime.resource import PODS, VMIS
from poolhouse.stack.engine.objects import VMI, Launcher
from poolhouse.stack.engine.resources import DOMAIN_ANNOTATION, LAUNCHER_LABEL, VMI_FINALIZER, has_condition

EVICT_ONLY_ANNOTATION = "descheduler.alpha.kubernetes.io/request-evict-only"
"""KubeVirt's annotation for the descheduler: an eviction that is denied may have begun a migration."""
NOT_COPIED = "kubectl.kubernetes.io", "kubevirt.io/storage-observed-api", "kubevirt.io/latest-observed-api"
"""Prefixes of the annotations of a VMI that its Pods do not get (`filterVMIAnnotationsForPod` in KubeVirt's
template.go)."""
EXTRA_SECONDS = 15
"""KubeVirt's addition to the grace period of the guest, so that the guest ends before its Pod is killed"""


@dataclass(frozen=True)
class CreateLauncher:
    node: str


@dataclass(frozen=True)
class SetReady:
    pod: Launcher
    ready: bool


@dataclass(frozen=True)
class RemoveLauncher:
    pod: Launcher


Action = CreateLauncher | SetReady | RemoveLauncher


def plan_launchers(vmi: VMI | None, pods: Iterable[Launcher], *, wanted: bool) -> Iterator[Action]:
    """The Pods of a VMI: one on its node, and during a migration one on the target node."""
    nodes = _nodes(vmi) if vmi is not None and wanted else ()
    ready = vmi is not None and vmi.deleted is None and has_condition(vmi.conditions, "Ready")
    occupied = set()
    for pod in pods:
        if not pod.controller_uid:
            continue  # somebody else has made it
        if vmi is None or pod.controller_uid != vmi.uid or pod.node not in nodes:
            yield RemoveLauncher(pod)
            continue
        occupied.add(pod.node)
        if pod.deleted is None and pod.ready != ready:
            yield SetReady(pod, ready)
    yield from (CreateLauncher(node) for node in nodes if node not in occupied)


def _nodes(vmi: VMI) -> tuple[str, ...]:
    # A deleted VMI without the finalizer has no guest any more, whatever its phase says. After a foreground deletion
    # it exists until its Pods are gone.
    ended = vmi.deleted is not None and VMI_FINALIZER not in vmi.finalizers
    if ended or vmi.phase not in ("Scheduled", "Running") or not vmi.node:
        return ()
    migration = vmi.status.get("migrationState") or {}
    target = "" if migration.get("completed") else str(migration.get("targetNode") or "")
    return tuple(dict.fromkeys((vmi.node, *filter(None, [target]))))


def shut_down_at(vmi: VMI, pods: Iterable[Launcher]) -> datetime | None:
    """When the guest must have shut down because its Pod is being deleted; None if it is not."""
    own = (each for each in pods if each.controller_uid == vmi.uid and each.node == vmi.node)
    ends = [each.deleted for each in own if each.deleted is not None]
    return min(ends) - timedelta(seconds=EXTRA_SECONDS) if ends else None


def new_pod(vmi: VMI, metadata: Json, node: str) -> Json:
    """A launcher Pod with the labels and annotations in the VMI's metadata."""
    unique = hashlib.sha256(f"{vmi.uid} {node}".encode()).hexdigest()[:8]
    labels, of_vmi = metadata.get("labels") or {}, metadata.get("annotations") or {}
    annotations = {key: value for key, value in of_vmi.items() if not key.startswith(NOT_COPIED)}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "namespace": vmi.namespace,
            "name": f"virt-launcher-{vmi.name[:40]}-{unique}",
            "labels": {**labels, LAUNCHER_LABEL: "virt-launcher", KUBEVIRT_CREATED_BY: vmi.uid},
            "annotations": {**annotations, DOMAIN_ANNOTATION: vmi.name, EVICT_ONLY_ANNOTATION: ""},
            "ownerReferences": [controller_reference(VMIS.api_version, VMIS.kind, vmi.name, vmi.uid)],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "compute", "image": "virt-launcher"}],
            "terminationGracePeriodSeconds": int(vmi.grace_seconds) + EXTRA_SECONDS,
            "automountServiceAccountToken": False,
        },
    }


def pod_status(*, ready: bool) -> Json:
    running = {"name": "compute", "image": "virt-launcher", "imageID": "", "restartCount": 0, "state": {"running": {}}}
    conditions = [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [{**running, "ready": ready}]}
