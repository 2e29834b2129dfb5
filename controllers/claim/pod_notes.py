"""What Pods of the virtual node say of their claims: which claim they have, and how soon a deleted Pod must end.

The application of a Pod's claim is launched only after the Pod names the claim, in an annotation that the virtual node
writes when the claim has a VM. So a Pod whose claim is deleted after the launch is known by its annotation. It fails,
instead of getting another claim that would launch its application a second time.
"""

from dataclasses import dataclass

from controllers.claim.snapshot import Claim
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import PODS
from poolhouse.runtime.store import Store


@dataclass(frozen=True, slots=True)
class PodNote:
    namespace: str
    uid: str
    claim: str
    """the name of the claim in the annotation of the Pod; empty without one"""
    grace_seconds: int | None = None
    """the grace period of the deletion, which may differ from that in the Pod's spec; None before"""


def parse_pod_note(document: Json) -> PodNote:
    metadata = document["metadata"]
    claim = (metadata.get("annotations") or {}).get(meta.CLAIM_NAME, "")
    return PodNote(metadata["namespace"], metadata["uid"], claim, metadata.get("deletionGracePeriodSeconds"))


def informer_of(api: Api, node: str) -> Informer[PodNote]:
    return Informer(api, PODS, parse_pod_note, field_selector=f"spec.nodeName={node}")


def note_of(claim: Claim, notes: Store[PodNote]) -> PodNote | None:
    """The note of the Pod of the claim, if the Pod names the claim."""
    found = notes.get((claim.namespace, claim.pod.name)) if claim.pod is not None else None
    named = found is not None and claim.pod is not None and (found.uid, found.claim) == (claim.pod.uid, claim.name)
    return found if named else None
