"""Which Pods of the virtual node name their claims.

The application of a Pod's claim is launched only after the Pod names the claim, in an annotation that the virtual node
writes when the claim has a VM. So a Pod whose claim is deleted after the launch is known by its annotation. It fails,
instead of getting another claim that would launch its application a second time.
"""

from dataclasses import dataclass

from controllers.claim.snapshot import Claim
from controllers.shared.sources import PODS
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.store import Store


@dataclass(frozen=True, slots=True)
class PodNote:
    namespace: str
    uid: str
    claim: str
    """the name of the claim in the annotation of the Pod; empty without one"""


def parse_pod_note(document: Json) -> PodNote:
    metadata = document["metadata"]
    claim = (metadata.get("annotations") or {}).get(meta.CLAIM_NAME, "")
    return PodNote(metadata["namespace"], metadata["uid"], claim)


def informer_of(api: Api, node: str) -> Informer[PodNote]:
    return Informer(api, PODS, parse_pod_note, field_selector=f"spec.nodeName={node}")


def may_launch(claim: Claim, notes: Store[PodNote]) -> bool:
    """Whether the application of the claim may be launched: no Pod owns the claim, or its Pod names it."""
    if claim.pod is None:
        return True
    return notes.get((claim.namespace, claim.pod.name)) == PodNote(claim.namespace, claim.pod.uid, claim.name)
