"""Keeps the virtual Node and its Lease, while this process leads."""

import asyncio
import logging
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.shared.component import Component
from controllers.virtualnode.capacity import PodClaim, PoolCapacity, capacity, parse_claim, parse_pool
from controllers.virtualnode.endpoint import KubeletApp, serve_endpoint
from controllers.virtualnode.logs import LogReader
from controllers.virtualnode.plan import CreateNode, NodeFacts, NotOurs, PatchNode, plan
from controllers.virtualnode.pod import Pod
from controllers.virtualnode.settings import VirtualNodeSettings
from controllers.warmpool.agent import NetworkAgentClient
from controllers.warmpool.probe_address import Network
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.runtime.api import Api
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import AlreadyExists, NotFound
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.node_lease import NodeLease
from poolhouse.runtime.resource import NODES, Resource
from poolhouse.runtime.store import Store

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.5
"""Pause after a change of a pool or a claim. Many change together, and the Node has their sum."""
FOREIGN_SECONDS = 60.0
"""Time until the controllers look again at a Node of another program that has the name."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Offers:
    """The stores from which the capacity of the Node follows."""

    pools: Store[PoolCapacity | None]
    claims: Store[PodClaim | None]
    pods: Store[Pod]

    def resources(self) -> Json:
        return capacity(self.pools.all(), self.claims.all(), self.pods.all())


class NodeController:
    def __init__(
        self, api: Api, name: str, offers: Offers, now: Callable[[], datetime], endpoint: tuple[str, int] | None = None
    ) -> None:
        self._api, self._name, self._offers, self._now = api, name, offers, now
        self._endpoint = endpoint
        self._version = ""
        self.uid = ""
        """the UID of our Node; empty while it does not exist"""

    async def reconcile(self, name: str) -> float | None:
        found = await self._find()
        facts = NodeFacts(name, await self._api_version(), _architecture(), self._endpoint)
        step = plan(found, facts, self._offers.resources(), self._now())
        match step:
            case CreateNode(document):
                try:
                    found = await self._api.create(NODES, document)
                except AlreadyExists:
                    return SETTLE_SECONDS
                log.info("node %s: created, with room for %s Pods", name, found["status"]["capacity"]["pods"])
            case PatchNode(patch, subresource):
                await self._api.patch(NODES, None, name, patch, subresource=subresource)
            case NotOurs(message):
                log.error("%s", message)
        self.uid = "" if found is None or isinstance(step, NotOurs) else found["metadata"]["uid"]
        if isinstance(step, NotOurs):
            return FOREIGN_SECONDS
        # A patch of the Node may leave another one of its status to do.
        return SETTLE_SECONDS if isinstance(step, PatchNode) and step.subresource is None else None

    async def _find(self) -> Json | None:
        try:
            return await self._api.get(NODES, None, self._name)
        except NotFound:
            return None

    async def _api_version(self) -> str:
        if not self._version:
            self._version = str((await self._api.request("GET", "/version"))["gitVersion"])
        return self._version


def _architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def _version_of(document: Json) -> str:
    return str(document["metadata"].get("resourceVersion"))


def build(
    api: Api,
    settings: VirtualNodeSettings,
    pods: Informer[Pod],
    machines: Sequence[Network] = (),
    agents: NetworkAgentClient | None = None,
) -> Component:
    """`machines` are networks outside the Pod network in which VMs have addresses."""
    pools: Informer[PoolCapacity | None] = Informer(api, Resource.of(WARM_POOL), parse_pool)
    claims: Informer[PodClaim | None] = Informer(
        api, Resource.of(CLAIM), parse_claim, indexes={"pod": lambda claim: [claim.pod_uid] if claim else []}
    )
    nodes: Informer[str] = Informer(api, NODES, _version_of, label_selector=meta.VIRTUAL_NODE)
    listen = settings.listen
    endpoint = (settings.address, listen.port) if listen is not None else None
    node = NodeController(api, settings.name, Offers(pools.store, claims.store, pods.store), api.now, endpoint)
    reader = LogReader(
        api,
        settings.name,
        lambda uid: claims.store.by("pod", uid),
        VMAgents(api, machines).endpoint,
        (agents or NetworkAgentClient()).logs,
    )
    controller: Controller[str] = Controller("virtual-node", node.reconcile, workers=1, metrics=api.metrics)

    def changed(old: object, new: object) -> None:
        controller.enqueue(settings.name, SETTLE_SECONDS)

    for informer in (pools, claims, nodes, pods):
        informer.subscribe(changed)

    async def work() -> None:
        controller.enqueue(settings.name)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name=controller.name)
            group.create_task(NodeLease(api, settings.name, lambda: node.uid).run(), name="node-lease")
            if listen is not None:
                app = KubeletApp(api, settings.name, reader)
                group.create_task(serve_endpoint(app, listen, settings.address), name="kubelet-endpoint")

    return Component("virtual-node", (pools, claims, nodes), work)
