"""Which claims belong to Pods: those that the controllers of a virtual node made.

The Pod is the controller of its claim. The claim also has the Pod's name and UID in annotations, and a name that
follows from both. Admission refuses all of this from users who may not patch the status of the Pod
(`webhook/pod_claims.py`). A claim that has an owner reference to a Pod and nothing else is a claim of its author.

A Pod is not the controller of its claim any more after somebody has deleted the Pod with `--cascade=orphan`, or has
removed the owner reference. The annotations still name the Pod, so that the claim is released: no VM stays in use
without its Pod.
"""

import hashlib
from dataclasses import dataclass

from poolhouse.api.apimachinery.owner_references import controller_reference, controlling_pod
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta

LOST_EXIT_CODE = 137
"""the kubelet's exit code of a container whose end it has not seen"""


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    name: str
    uid: str
    lost: bool = False
    """whether the Pod is not the controller of the claim any more"""


def claim_name(pod: str, uid: str) -> str:
    """The name of the Pod's claim. It has the UID in it, so that a repeated request makes no second claim, and a later
    Pod of the same name does not wait for the end of the first one's claim."""
    digest = hashlib.sha256(uid.encode()).hexdigest()[:8]
    return f"{pod[:54].rstrip('-.')}-{digest}"


def claim_metadata(pod: str, uid: str) -> Json:
    """The name, the owner reference and the annotations of a Pod's claim, by which `pod_of` recognises it."""
    owner = controller_reference("v1", "Pod", pod, uid) | {"blockOwnerDeletion": False}
    return {
        "name": claim_name(pod, uid),
        "ownerReferences": [owner],
        "annotations": {meta.POD_NAME: pod, meta.POD_UID: uid},
    }


def pod_of(claim: Json) -> ClaimingPod | None:
    """The Pod for which the controllers made the claim; None for a claim of a user."""
    metadata = claim["metadata"]
    annotations = metadata.get("annotations") or {}
    name, uid = annotations.get(meta.POD_NAME), annotations.get(meta.POD_UID)
    if not name or not uid or metadata["name"] != claim_name(name, uid):
        return None
    return ClaimingPod(name, uid, lost=(controlling_pod(claim) or {}).get("uid") != uid)
