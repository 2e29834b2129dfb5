"""Keeps the virtual Node and its Lease while this process leads, and runs all that belongs to the Node."""

import asyncio
import logging
import platform
from collections.abc import Callable
from functools import partial

from controllers.shared.component import Component, ControllerContext
from controllers.virtualnode.capacity import capacity
from controllers.virtualnode.endpoint import KubeletApp, serve_endpoint
from controllers.virtualnode.logs import LogReader
from controllers.virtualnode.plan import CreateNode, NodeFacts, NotOurs, PatchNode, plan
from controllers.virtualnode.pods import build as build_pods
from controllers.virtualnode.settings import VirtualNodeSettings
from controllers.virtualnode.sources import Sources
from controllers.warmpool.agent import NetworkAgentClient
from controllers.warmpool.vm_agent import VMAgents
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.controller import Controller
from poolhouse.runtime.errors import AlreadyExists
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.node_lease import NodeLease
from poolhouse.runtime.resource import NODES
from poolhouse.runtime.store import Store

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.5
"""Pause after a change of a pool or a claim. Many change together, and the Node has their sum."""
FOREIGN_SECONDS = 60.0
"""Time until the controllers look again at a Node of another program that has the name."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class NodeController:
    def __init__(
        self,
        api: Api,
        name: str,
        nodes: Store[Json],
        resources: Callable[[], Json],
        endpoint: tuple[str, int] | None = None,
    ) -> None:
        """`nodes` has the Nodes of Poolhouse, and `resources` are the capacity of this one."""
        self._api, self._name, self._nodes, self._resources = api, name, nodes, resources
        self._endpoint = endpoint
        self._version = ""

    @property
    def uid(self) -> str:
        """The UID of our Node; empty while it does not exist."""
        found = self._nodes.get(("", self._name))
        return str(found["metadata"]["uid"]) if found else ""

    async def reconcile(self, name: str) -> float | None:
        # A Node of another program is not in the store, nor is ours for a moment after its creation.
        found = self._nodes.get(("", name)) or await find(self._api, NODES, None, self._name)
        facts = NodeFacts(name, await self._api_version(), _architecture(), self._endpoint)
        match plan(found, facts, self._resources(), self._api.now()):
            case CreateNode(document):
                try:
                    await self._api.create(NODES, document)
                except AlreadyExists:
                    return SETTLE_SECONDS
                log.info("node %s: created, with room for %s Pods", name, document["status"]["capacity"]["pods"])
            case PatchNode(patch, subresource):
                await self._api.patch(NODES, None, name, patch, subresource=subresource)
            case NotOurs(message):
                log.error("%s", message)
                return FOREIGN_SECONDS
        return None

    async def _api_version(self) -> str:
        if not self._version:
            self._version = str((await self._api.request("GET", "/version"))["gitVersion"])
        return self._version


def _architecture() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def _whole(document: Json) -> Json:
    return document


def build(
    context: ControllerContext, settings: VirtualNodeSettings, agents: NetworkAgentClient, vm_agents: VMAgents
) -> Component:
    """`vm_agents` finds the agents in VMs, and `agents` asks them."""
    api = context.api
    sources = Sources.of_node(api, settings.name)
    pods, claims, pools = sources.of_capacity
    nodes: Informer[Json] = Informer(api, NODES, _whole, label_selector=meta.VIRTUAL_NODE)

    def resources() -> Json:
        return capacity(pools.store.all(), claims.store.all(), pods.store.all())

    listen = settings.listen
    endpoint = (settings.address, listen.port) if listen is not None else None
    node = NodeController(api, settings.name, nodes.store, resources, endpoint)
    logs = LogReader(api, settings.name, partial(claims.store.by, "pod"), vm_agents.endpoint, agents.logs)
    controller: Controller[str] = Controller("virtual-node", node.reconcile, workers=1, metrics=api.metrics)
    pod_controller = build_pods(api, context.events, sources, vm_agents)

    def changed(old: object, new: object) -> None:
        controller.enqueue(settings.name, SETTLE_SECONDS)

    for informer in (*sources.of_capacity, nodes):
        informer.subscribe(changed)

    async def work() -> None:
        controller.enqueue(settings.name)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name=controller.name)
            group.create_task(pod_controller.run(), name=pod_controller.name)
            group.create_task(NodeLease(api, settings.name, lambda: node.uid).run(), name="node-lease")
            if listen is not None:
                app = KubeletApp(api, settings.name, logs)
                group.create_task(serve_endpoint(app, listen, settings.address), name="kubelet-endpoint")

    return Component("virtual-node", (*sources.informers, nodes), work)
