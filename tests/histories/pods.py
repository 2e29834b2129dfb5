"""Histories of Pods of the virtual node, and of the warm pool whose VMs run them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from controllers.claim.snapshot import CLAIMS
from controllers.shared.component import Component, ControllerContext
from controllers.shared.pod_claims import pod_of
from controllers.virtualnode.pod import TERMINAL
from controllers.virtualnode.pods import build as build_pods
from controllers.virtualnode.sources import Sources
from controllers.warmpool.vm_agent import VMAgents
from controllers.warmpool.warm_pool import WARM_POOLS
from controllers.warmpool_and_claim import build as build_warm
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import PODS, VMIS, VMS, Resource
from poolhouse.stack.engine.agents.addresses import NETWORK
from tests.builders import manifest
from tests.cluster.claiming import OVER
from tests.cluster.warm_pools import template
from tests.histories.agents import EXIT_CODE, SECONDS, Agents
from tests.histories.api_server import Change, is_deleting
from tests.histories.history import Act
from tests.histories.others import respell_template, strip_owners
from tests.histories.warm_pools import CLAIM_RESOURCE, POOL_RESOURCE, VM_RESOURCE, ClaimHistory
from tests.histories.world import HERE, World
from tests.planning import InlinePlanner

Json = dict[str, Any]

NODE = "poolhouse"
MAX_TOTAL = 6
ENDS: tuple[tuple[str, str, str], ...] = (
    ("Always", "", "0"),
    ("OnFailure", "", "0"),
    ("OnFailure", "20", "0"),
    ("Never", "1", "0"),
    ("Never", "5", "1"),
    ("Never", "90", "0"),
)
"""Restart policies of Pods, when their containers end, and how. None restarts for ever: it would never be at rest."""
WAITS = {"FieldsNotSupported", "NoWarmPool"}
"""Reasons for which a Pod waits for ever."""


def _pod_uid(claim: Json) -> str:
    pod = pod_of(claim)
    return pod.uid if pod is not None else ""


def sized(memory: str) -> Json:
    """A template whose guests have an address, and run for a while after their VM is deleted."""
    found = template(memory, stop_seconds="8")
    spec = found["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 30
    spec["domain"]["devices"] = {"interfaces": [{"name": "default", "masquerade": {}}]}
    spec["networks"] = [{"name": "default", "pod": {}}]
    return found


class PodHistory(ClaimHistory):
    """A Pod has one VM at a time, runs once, never leaves its last phase, and leaves nothing behind."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.agents = Agents(world)
        self.api = self.desk.api
        self.made = 0
        self.settled: dict[str, int] = {}
        """How often a Pod's application was launched until its claim was Ready or deleted, by UID of the Pod."""

    def build(self, api: Api, events: EventRecorder, process: str) -> Component:
        context = ControllerContext(api=api, events=events, planner=InlinePlanner(Random(process)))
        warm = build_warm(context, process_id=process, machines=(NETWORK,), agents=self.agents, virtual_node=NODE)
        sources = Sources.of_node(api, NODE)
        pods = build_pods(api, events, sources, VMAgents(api, (NETWORK,)))

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(warm.work(), name=warm.name)
                group.create_task(pods.run(), name=pods.name)

        return Component("pods", (*warm.informers, *sources.informers), work)

    async def begin(self) -> None:
        made = await self.desk.pool(
            3,
            maxTotal=MAX_TOTAL,
            default=True,
            agent={"port": 8200},
            template=sized("64Mi"),
            claimPolicy={"allowPods": True, "onEmpty": "Queue"},
            readiness={"timeoutSeconds": 20},
        )
        self.checker.max_total[made["metadata"]["uid"]] = MAX_TOTAL

    # What must always hold

    def saw(self, change: Change) -> list[str]:
        if change.plural == CLAIM_RESOURCE:
            uid = _pod_uid(change.document)
            launched, phase = len(self.agents.launched.get(uid, ())), at(change.document, "status", "phase")
            deleted = change.new is None and launched and phase not in OVER
            if deleted or at(change.document, "status", "readyAt"):
                self.settled.setdefault(uid, launched)
        found = super().saw(change) + list(self._applications())
        return found + list(self._pod(change)) if change.plural == PODS.plural else found

    def _applications(self) -> Iterator[str]:
        """An application whose VM is lost before its claim is Ready is launched in another one, and never again after
        that, nor after its claim is deleted. It never runs in two VMs."""
        for uid, guests in self.agents.launched.items():
            running = [each for each in guests if self.world.running_guest(each) and self.agents.runs(each)]
            if len(running) > 1:
                yield f"{self._name(uid)} runs in {len(running)} VMs"
            if len(guests) > self.settled.get(uid, len(guests)):
                yield f"{self._name(uid)} was launched again after its claim was Ready or deleted"

    def _pod(self, change: Change) -> Iterator[str]:
        uid = change.document["metadata"]["uid"]
        before, after = (at(each or {}, "status", "phase") for each in (change.old, change.new))
        if change.new is not None and (before in TERMINAL or before == "Running") and after not in TERMINAL:
            if before != after:
                yield f"{self._name(uid)} was {before} and is {after}"
        elif change.new is not None and before in TERMINAL and after != before:
            yield f"{self._name(uid)} was {before} and is {after}"
        if change.new is None and change.actor.startswith("controllers"):
            guests = self.agents.launched.get(uid, ())
            if any(self.world.running_guest(each) and self.agents.runs(each) for each in guests):
                yield f"{self._name(uid)} was removed, and its application runs"

    def _name(self, uid: str) -> str:
        return f"Pod {self.agents.pods.get(uid, {}).get('metadata', {}).get('name', uid)}"

    # Users

    async def act(self) -> str:
        often: Sequence[Act] = [self.create_pod] * 6 + [self.delete_pod] * 3
        others: list[Act] = [
            self.recreate_pod,
            self.delete_claim,
            self.delete_vm,
            self.crash_guest,
            self.scale,
            self.open_or_close,
            self.change_template,
            self.silence_agents,
            self.respell,
            self.strip,
        ]
        return await self.world.random.choice([*often, *others])()

    def script(self) -> list[Act]:
        return [
            self.create_pod,
            self.create_pod,
            self.create_pod,
            self.delete_pod,
            self.recreate_pod,
            self.delete_claim,
        ]

    async def create_pod(self) -> str:
        self.made += 1
        return await self._create(f"p{self.made}")

    async def _create(self, name: str) -> str:
        random = self.world.random
        policy, seconds, code = random.choice(ENDS)
        notes = {SECONDS: seconds, EXIT_CODE: code} if seconds else {}
        spec: Json = {
            "nodeName": NODE,
            "restartPolicy": policy,
            "containers": [{"name": "main", "image": "registry.example/main:1"}],
            "terminationGracePeriodSeconds": random.choice([0, 1, 30]),
        }
        chance = random.random()
        if chance < 0.1:
            spec["hostNetwork"] = True
        elif chance < 0.2:
            notes[meta.WARM_POOL] = "missing"
        elif chance < 0.3:
            spec["activeDeadlineSeconds"] = random.choice([5, 60])
        elif chance < 0.4:
            spec["initContainers"] = [{"name": "first", "image": "registry.example/first:1"}]
        await self.api.create(PODS, manifest(PODS, name, spec, HERE, annotations=notes))
        return f"Pod {name} {notes} { ({key: spec[key] for key in spec if key not in ('containers', 'nodeName')}) }"

    async def delete_pod(self) -> str:
        """Two of five deletions are by force, as those of the garbage collector of Pods are."""
        if not (name := await self._any(PODS)):
            return ""
        grace = self.world.random.choice([None, None, 1, 0, 0])
        await self.api.delete(PODS, HERE, name, grace_seconds=grace)
        return f"delete {name} {grace=}"

    async def recreate_pod(self) -> str:
        """As the controller of a StatefulSet after a deletion by force."""
        if not (name := await self._any(PODS)):
            return ""
        await self.api.delete(PODS, HERE, name, grace_seconds=0)
        return f"again: {await self._create(name)}"

    async def delete_claim(self) -> str:
        if name := await self._any(CLAIMS):
            await self.desk.unclaim(name)
        return f"delete claim {name}"

    async def delete_vm(self) -> str:
        found, _ = await self.api.list(VMS, HERE)
        if not found:
            return ""
        metadata = self.world.random.choice(found)["metadata"]
        self.checker.killed.add(metadata["uid"])
        await self.api.delete(VMS, HERE, metadata["name"])
        return f"kill {metadata['name']}"

    async def crash_guest(self) -> str:
        if name := await self._any(VMIS):
            notes = {meta.SIM_PREFIX + "crash-seconds": "1"}
            await self.api.patch(VMIS, HERE, name, {"metadata": {"annotations": notes}})
        return f"crash {name}"

    async def scale(self) -> str:
        replicas = self.world.random.choice([0, 1, 2, 4])
        await self.desk.change(replicas=replicas)
        return f"scale {replicas}"

    async def open_or_close(self) -> str:
        allowed = self.world.random.random() < 0.7
        await self.desk.change(claimPolicy={"allowPods": allowed})
        return f"allowPods {allowed}"

    async def change_template(self) -> str:
        memory = self.world.random.choice(["64Mi", "96Mi"])
        await self.desk.change(template=sized(memory))
        return f"template {memory}"

    async def silence_agents(self) -> str:
        self.agents.rate = self.world.random.choice([0.0, 0.1, 0.5, 1.0])
        return f"agents do not answer {self.agents.rate:.0%} of the calls"

    async def respell(self) -> str:
        return await respell_template(self.api, WARM_POOLS, (HERE, "web"), VM_TEMPLATE, self.world.random)

    async def strip(self) -> str:
        """An administrator may also take a claim from its Pod, as the garbage collector does for `--cascade=orphan`."""
        return await strip_owners(self.api, self.world.random.choice([VMS, CLAIMS]), HERE, self.world.random)

    async def _any(self, resource: Resource) -> str:
        found, _ = await self.api.list(resource, HERE)
        return str(self.world.random.choice(found)["metadata"]["name"]) if found else ""

    # At rest

    async def make_peace(self) -> None:
        """Room for all Pods, and agents that answer. Each Pod that is left gets its VM, unless it can have none."""
        self.agents.rate = 0.0
        patient: Json = {"readiness": {"timeoutSeconds": 300}, "refill": {"backoffSeconds": 1, "maxBackoffSeconds": 2}}
        for uid in self.checker.max_total:
            self.checker.max_total[uid] = 40
        policy = {"allowPods": True, "onEmpty": "Queue"}
        await self.desk.change(replicas=3, maxTotal=40, claimPolicy=policy, template=sized("64Mi"), **patient)

    async def why_not_at_rest(self) -> str:
        try:
            pods, _ = await self.api.list(PODS, HERE)
            claims, _ = await self.api.list(CLAIMS, HERE)
            vms, _ = await self.api.list(VMS, HERE)
            status = await self.desk.status()
        except ApiError as error:
            return str(error)
        unfinished = {_pod_uid(each): each for each in claims if at(each, "status", "phase") not in OVER}
        for pod in pods:
            if why := self._why_pod_moves(pod, unfinished.pop(pod["metadata"]["uid"], None)):
                return f"Pod {pod['metadata']['name']} {why}: {pod.get('status')}"
        if unfinished:
            return f"claims {[each['metadata']['name'] for each in unfinished.values()]} have no Pod that needs them"
        uids = {each["metadata"]["uid"] for each in claims if at(each, "status", "phase") not in OVER}
        for vm in vms:
            claim = (vm["metadata"].get("labels") or {}).get(meta.CLAIM_UID)
            if is_deleting(vm) or (claim and claim not in uids):
                return f"VM {vm['metadata']['name']} is left"
        return "" if status.get("availableReplicas") == 3 else f"the pool: {status}"

    def _why_pod_moves(self, pod: Json, claim: Json | None) -> str:
        phase, reason = at(pod, "status", "phase"), at(pod, "status", "reason")
        if is_deleting(pod):
            return "is being deleted"
        if phase in TERMINAL or (phase == "Pending" and reason in WAITS):
            return "has a claim" if claim is not None else ""
        if phase != "Running" or claim is None:
            return f"is {phase}" + ("" if claim is not None else " without a claim")
        guests = self.agents.launched.get(pod["metadata"]["uid"], ())
        runs = any(self.world.running_guest(each) and self.agents.runs(each) for each in guests)
        return "" if runs else "is Running, and its application is not"

    async def check_at_rest(self) -> None:
        known = len(self.checker.violations)
        owners = [*self.world.server.objects(POOL_RESOURCE), *self.world.server.objects(CLAIM_RESOURCE)]
        self.checker.at_rest(self.world.server.objects(VM_RESOURCE), {each["metadata"]["uid"] for each in owners})
        for each in self.checker.violations[known:]:
            self.world.violated(each)
