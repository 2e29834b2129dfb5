"""1,000 Pods at once for 100 VMs of the virtual node, while the controllers are killed.

    python -m tests.cluster.pod_burst [--pods 1000] [--vms 100] [--kills 10]

Each Pod must succeed after exactly one launch, in a VM of its own, with the only claim that it ever has, and no VM and
no claim may be left. The controllers are ended by SIGKILL each time that a further share of the Pods has ended; the
supervisor starts them again. Watches see every state of Pods, claims and VMs.

It takes many minutes, so it is no test of `make test`, which runs Pods through the crash of the controllers as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from controllers.claim.snapshot import CLAIMS
from controllers.shared.pod_claims import pod_of
from controllers.virtualnode.pod import TERMINAL
from controllers.warmpool.warm_pool import WARM_POOLS
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import NAMESPACES, PODS, VMS
from poolhouse.stack.paths import StackPaths
from tests.bench.pods import POOL, TOLERATION, pod
from tests.builders import manifest
from tests.cluster.chaos import watched
from tests.cluster.processes import kill_controllers
from tests.cluster.warm_invariants import OVER, InvariantChecker
from tests.conftest import stack
from tests.waiting import eventually

Json = dict[str, Any]

PATIENCE_SECONDS = 3600.0
AT_ONCE = 20
NAMESPACE = "burst"
ORDERS = {("Pending", "Running", "Succeeded"), ("Pending", "Succeeded")}
"""the phases of a Pod, in their order"""
FAST = {"application": "true", "application-seconds": "1", "start-seconds": "0.2", "stop-seconds": "0.1"}


@dataclass
class Witness:
    """What has happened to each Pod, by UID of the Pod."""

    checker: InvariantChecker = field(default_factory=InvariantChecker)
    phases: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """UIDs of the claims"""
    launches: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    """UID of the VM, and the time that the agent gives for the launch"""
    vms: set[str] = field(default_factory=set)
    """UIDs of all VMs that exist"""
    most_vms: int = 0

    def pod(self, kind: str, document: Json) -> None:
        uid, phase = document["metadata"]["uid"], at(document, "status", "phase")
        if kind != "DELETED" and phase not in self.phases[uid][-1:]:
            self.phases[uid].append(str(phase))

    def claim(self, kind: str, document: Json) -> None:
        self.checker.claim_event(kind, document)
        if (owner := pod_of(document)) is not None:
            self.claims[owner.uid].add(document["metadata"]["uid"])
            if launched := at(document, "status", "application", "startTime"):
                self.launches[owner.uid].add((at(document, "status", "vmRef", "uid"), launched))

    def vm(self, kind: str, document: Json) -> None:
        self.checker.vm_event(kind, document)
        (self.vms.discard if kind == "DELETED" else self.vms.add)(document["metadata"]["uid"])
        self.most_vms = max(self.most_vms, len(self.vms))

    def ended(self) -> int:
        return sum(phases[-1] in TERMINAL for phases in self.phases.values())

    def have_ended(self, pods: int) -> bool:
        return self.ended() >= pods

    def problems(self, pods: int) -> list[str]:
        found = list(self.checker.violations)
        orders = Counter(map(tuple, self.phases.values()))
        if (
            not orders.keys() <= {("Pending", "Running", "Succeeded"), ("Pending", "Succeeded")}
            or len(self.phases) != pods
        ):
            found.append(f"phases of the Pods: {orders}")
        found += [f"Pod {uid} had {len(each)} claims" for uid, each in self.claims.items() if len(each) > 1]
        found += [f"Pod {uid} was launched {sorted(each)}" for uid, each in self.launches.items() if len(each) > 1]
        used = Counter(vm for each in self.launches.values() for vm, _ in each)
        if len(used) != pods or max(used.values()) > 1:
            found.append(f"{len(used)} VMs ran {sum(used.values())} applications")
        return found


async def burst(paths: StackPaths, options: argparse.Namespace) -> Json:
    witness, kills = Witness(), list[int]()
    async with (
        await Api.connect(paths.kubeconfig, user_agent="tests", timeout_seconds=60) as api,
        AsyncExitStack() as watches,
    ):
        await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for resource, saw in ((PODS, witness.pod), (CLAIMS, witness.claim), (VMS, witness.vm)):
            await watches.enter_async_context(watched(api, resource, NAMESPACE, saw))
        uid = await make_pool(api, options.vms)
        witness.checker.max_total[uid] = options.vms
        await eventually(lambda: is_full(api, options.vms), PATIENCE_SECONDS)
        began = time.monotonic()

        def say(what: str) -> None:
            print(f"{time.monotonic() - began:5.0f} s: {what}, {witness.ended()} Pods have ended", flush=True)

        limit = asyncio.Semaphore(AT_ONCE)

        async def create(number: int) -> None:
            async with limit:
                wanted = {"restartPolicy": "Never", "nodeSelector": {"type": "virtual-kubelet"}}
                await api.create(PODS, pod(NAMESPACE, f"p{number}", tolerations=[TOLERATION], **wanted))

        say("the pool is full")
        async with asyncio.TaskGroup() as group:
            group.create_task(kill_at_shares(paths, options, witness, kills, say))
            for number in range(options.pods):
                group.create_task(create(number))
        await eventually(lambda: witness.ended() == options.pods, PATIENCE_SECONDS)
        say("all")
        await eventually(lambda: all_released(api), PATIENCE_SECONDS)
        await eventually(lambda: is_full(api, options.vms), PATIENCE_SECONDS)
        say("at rest")
        problems = witness.problems(options.pods)
        assert not problems, "\n".join(problems)
        return {
            "pods": len(witness.phases),
            "vms": len(witness.checker.lives),
            "most_vms_at_once": witness.most_vms,
            "kills": len(kills),
            "ended_at_each_kill": kills,
            "seconds": round(time.monotonic() - began),
        }


async def make_pool(api: Api, vms: int) -> str:
    """Returns its UID."""
    annotations = {meta.SIM_PREFIX + key: value for key, value in FAST.items()}
    template = {**POOL["template"], "metadata": {"annotations": annotations}}
    spec = {**POOL, "replicas": vms, "maxTotal": vms, "template": template}
    spec["claimPolicy"] = {**POOL["claimPolicy"], "onEmpty": "Queue"}
    made = await api.create(WARM_POOLS, manifest(WARM_POOLS, "warm", spec, NAMESPACE))
    return str(made["metadata"]["uid"])


async def is_full(api: Api, vms: int) -> bool:
    wanted = f"{meta.WARM_STATE}=Ready,{meta.WARM_POOL}=warm"
    return len((await api.list(VMS, NAMESPACE, label_selector=wanted))[0]) == vms


async def all_released(api: Api) -> bool:
    return all(at(each, "status", "phase") in OVER for each in (await api.list(CLAIMS, NAMESPACE))[0])


async def kill_at_shares(
    paths: StackPaths, options: argparse.Namespace, witness: Witness, kills: list[int], say: Any
) -> None:
    for number in range(options.kills):
        await eventually(
            partial(witness.have_ended, (number + 1) * options.pods // (options.kills + 1)), PATIENCE_SECONDS
        )
        kills.append(witness.ended())
        pid = await asyncio.to_thread(kill_controllers, paths)
        say(f"kill -9 {pid}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--dir", type=Path, help="where the stack and its logs are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        paths = StackPaths(options.dir or Path(directory))
        with stack(paths, "--engine", "simulated", "--virtual-node", "--without", "defaulter"):
            print(json.dumps(asyncio.run(burst(paths, options))))


if __name__ == "__main__":
    main()
