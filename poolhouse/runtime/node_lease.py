"""Renews the Lease of a Node, as its kubelet does. Without it, Kubernetes takes the Node for lost after its own time
(`--node-monitor-grace-period`), taints it, and evicts its Pods."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, ApiError, Conflict, NotFound
from poolhouse.runtime.resource import LEASES

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
DURATION_SECONDS = 40
RENEW_SECONDS = 10.0
"""Duration and renewal of the kubelet's Leases"""
RETRY_SECONDS = 2.0


def lease_of(found: Json | None, node: str, uid: str, now: datetime) -> Json:
    """The Lease as of now. The garbage collector deletes it with its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    metadata = {**(found or {}).get("metadata", {"namespace": NAMESPACE, "name": node}), "ownerReferences": [owner]}
    spec = {
        **((found or {}).get("spec") or {}),
        "holderIdentity": node,
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewTime": format_micro_time(now),
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class NodeLease:
    """Renews the Lease of one Node. `uid_of` returns the UID of the Node, or "" while there is none."""

    def __init__(self, api: Api, node: str, uid_of: Callable[[], str]) -> None:
        self._api = api.urgent  # a renewal must not wait for other calls
        self._node, self._uid_of = node, uid_of
        self._found: Json | None = None

    async def run(self) -> NoReturn:
        while True:
            renewed = await self._try_to_renew()
            await asyncio.sleep(RENEW_SECONDS if renewed else RETRY_SECONDS)

    async def _try_to_renew(self) -> bool:
        """Whether the Lease is renewed. A Node that does not exist yet has none."""
        if not (uid := self._uid_of()):
            return False
        try:
            await self._renew(uid)
        except (Conflict, NotFound, AlreadyExists):  # another process has renewed or deleted it
            self._found = None
        except ApiError as error:
            log.warning("the Lease of node %s is not renewed: %s", self._node, error)
        else:
            return True
        return False

    async def _renew(self, uid: str) -> None:
        """Does not read the Lease that this process has written last, as the kubelet."""
        now = self._api.now()
        if self._found is None:
            try:
                self._found = await self._api.get(LEASES, NAMESPACE, self._node)
            except NotFound:
                self._found = await self._api.create(LEASES, lease_of(None, self._node, uid, now))
                return
        self._found = await self._api.replace(LEASES, lease_of(self._found, self._node, uid, now))
