"""What the controllers of the Node and of its Pods read: Pods of the Node, their claims and VMs, and warm pools."""

from dataclasses import dataclass
from typing import Any, Self

from controllers.shared.vmi import VMI
from controllers.virtualnode.pod import Pod, PodClaim, PodPool, parse_claim, parse_pod, parse_pool
from controllers.warmpool.cache import WARM_VMIS
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import PODS, Key, Resource


def _namespace(view: Pod | PodPool) -> tuple[str]:
    return (view.namespace,)


def _vm(claim: PodClaim | None) -> tuple[Key, ...]:
    return ((claim.namespace, claim.vm),) if claim is not None and claim.vm else ()


def _pod(claim: PodClaim | None) -> tuple[str, ...]:
    return (claim.pod_uid,) if claim is not None else ()


@dataclass(frozen=True)
class Sources:
    pods: Informer[Pod]
    """by `namespace`"""
    claims: Informer[PodClaim | None]
    """by `pod`, the UID of the Pod, and by `vm`, its key; None for a claim that belongs to no Pod"""
    pools: Informer[PodPool]
    """by `namespace`"""
    vmis: Informer[VMI]

    @classmethod
    def of_node(cls, api: Api, node: str) -> Self:
        of_node = f"spec.nodeName={node}"
        return cls(
            Informer(api, PODS, parse_pod, field_selector=of_node, indexes={"namespace": _namespace}),
            Informer(api, Resource.of(CLAIM), parse_claim, indexes={"pod": _pod, "vm": _vm}),
            Informer(api, Resource.of(WARM_POOL), parse_pool, indexes={"namespace": _namespace}),
            WARM_VMIS.informer(api),
        )

    @property
    def of_capacity(self) -> tuple[Informer[Pod], Informer[PodClaim | None], Informer[PodPool]]:
        """What decides for how many Pods the Node has room."""
        return self.pods, self.claims, self.pools

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return *self.of_capacity, self.vmis
