"""Pods and claims of the virtual node's tests."""

from __future__ import annotations

from typing import Any

from controllers.shared.pod_claims import claim_metadata

Json = dict[str, Any]

CONTAINER: Json = {"name": "main", "image": "alpine", "command": ["sleep", "1"], "resources": {}}
TOKEN_SOURCES: list[Json] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
    {
        "downwardAPI": {
            "items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]
        }
    },
]
TOKEN = {"name": "kube-api-access-x7x9k", "projected": {"defaultMode": 420, "sources": TOKEN_SOURCES}}
TOKEN_MOUNT = {"name": TOKEN["name"], "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}


def pod(
    *, metadata: Json | None = None, status: Json | None = None, container: Json | None = None, **spec: Any
) -> Json:
    """A Pod as the API server stores it after the scheduler has bound it to the virtual node."""
    return {
        "metadata": {"namespace": "ns", "name": "web", "uid": "u-1", "resourceVersion": "7", **(metadata or {})},
        "spec": {
            "containers": [{**CONTAINER, **(container or {})}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "nodeName": "poolhouse",
            "serviceAccountName": "builder",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "tolerations": [{"key": "poolhouse.dev/warm-vm", "operator": "Exists"}],
            **spec,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort", **(status or {})},
    }


CLAIM_OF_WEB = "web-a24a7f55"


def claim(
    phase: str = "Ready",
    *,
    vm: str = "warm-1",
    application: Json | None = None,
    release: bool = False,
    lost: bool = False,
    dropped: bool = False,
    **status: Any,
) -> Json:
    """The claim of the Pod, as the API server stores it. `why` is the condition that is False. A lost claim has no
    owner reference to the Pod any more."""
    own = claim_metadata("web", "u-1") | ({"ownerReferences": []} if lost else {})
    kind = "Bound" if phase in ("Pending", "Queued", "Allocating") else "Ready"
    why = status.pop("why", None)
    conditions = [{"type": kind, "status": "False", "reason": why[0], "message": why[1]}] if why else []
    ready = {"readyAt": "2026-01-01T00:00:05Z", "boundAt": "2026-01-01T00:00:04.5Z"}
    handed_over = ready if phase == "Ready" or (vm and phase in ("Releasing", "Released", "Expired", "Failed")) else {}
    return {
        "metadata": {**own, "namespace": "ns", "uid": "c-1"},
        "spec": {"release": release, **({"ttlSecondsAfterFinished": 0} if dropped else {})},
        "status": {
            "phase": phase,
            **({"vmRef": {"name": vm, "uid": "v"}} if vm else {}),
            **({"application": application} if application else {}),
            "conditions": conditions,
            **handed_over,
            **status,
        },
    }
