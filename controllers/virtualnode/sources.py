"""What the controllers of the Node and of its Pods read: Pods of the Node, their claims, and warm pools."""

from dataclasses import dataclass
from typing import Self

from controllers.shared.sources import PODS
from controllers.virtualnode.pod import Pod, PodClaim, PodPool, parse_claim, parse_pod, parse_pool
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import Resource


def _namespace(view: Pod | PodPool) -> tuple[str]:
    return (view.namespace,)


def _pod(claim: PodClaim | None) -> tuple[str, ...]:
    return (claim.pod_uid,) if claim is not None else ()


@dataclass(frozen=True)
class Sources:
    pods: Informer[Pod]
    """by `namespace`"""
    claims: Informer[PodClaim | None]
    """by `pod`, the UID of the Pod; None for a claim that belongs to no Pod"""
    pools: Informer[PodPool]
    """by `namespace`"""

    @classmethod
    def of_node(cls, api: Api, node: str) -> Self:
        of_node = f"spec.nodeName={node}"
        return cls(
            Informer(api, PODS, parse_pod, field_selector=of_node, indexes={"namespace": _namespace}),
            Informer(api, Resource.of(CLAIM), parse_claim, indexes={"pod": _pod}),
            Informer(api, Resource.of(WARM_POOL), parse_pool, indexes={"namespace": _namespace}),
        )

    @property
    def informers(self) -> tuple[Informer[Pod], Informer[PodClaim | None], Informer[PodPool]]:
        return self.pods, self.claims, self.pools
