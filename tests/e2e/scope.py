"""A namespace of a test, and what tests do in it. Everything in it waits with patience for a busy cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds import CLAIM, POOL, WARM_POOL
from poolhouse.cli.main import poolhouse
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import PODS, PVCS, VMIS, VMS, Resource
from tests.builders import manifest, vm_spec, vmi_spec
from tests.e2e.target import Target
from tests.resources import VM_REQUESTS
from tests.waiting import eventually, until

Json = dict[str, Any]

POOLS, WARM_POOLS, CLAIMS = (Resource.of(kind) for kind in (POOL, WARM_POOL, CLAIM))


@dataclass(frozen=True)
class Scope:
    api: Api
    namespace: str
    target: Target

    @property
    def kubectl(self) -> list[str]:
        return [*self.target.kubectl, "-n", self.namespace]

    # Documents

    def vm_spec(self, *, image: str = "", disk: Json | None = None, run_strategy: str = "Always", **spec: Any) -> Json:
        """The spec of a VM whose root disk is a container disk, or a DataVolume with this spec."""
        volume: Json = {"containerDisk": {"image": image or self.target.image}}
        if disk is not None:
            volume = {"dataVolume": {"name": "root"}}
            spec = {"dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": disk}], **spec}
        vmi = {**vmi_spec({"root": volume}, ["default"]), "terminationGracePeriodSeconds": 0}
        return vm_spec(vmi, **{"runStrategy": run_strategy, **spec})

    def document(self, resource: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        return manifest(resource, name, spec, self.namespace, **metadata)

    async def create(self, resource: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        return await self.api.create(resource, self.document(resource, name, spec, **metadata))

    async def pool(self, replicas: int, name: str = "web", *, vm: Json | None = None, **spec: Any) -> Json:
        given = {"replicas": replicas, "maxUnavailable": 1, "template": {"spec": vm or self.vm_spec()}, **spec}
        return await self.create(POOLS, name, given)

    async def change(self, resource: Resource, name: str, change: Callable[[Json], None]) -> Json:
        """Replaces the object by its changed copy; asks again if somebody else has changed it meanwhile."""

        async def changed() -> Json | None:
            stored = await self.api.get(resource, self.namespace, name)
            wanted = deepcopy(stored)
            change(wanted)
            try:
                return await self.api.replace(resource, wanted)
            except ApiError as error:
                if error.status == 409:
                    return None
                raise

        found = await eventually(changed, self.target.patience_seconds)
        assert isinstance(found, dict)
        return found

    async def scale(self, replicas: int, name: str = "web") -> None:
        body = {"spec": {"replicas": replicas}}
        await self.api.patch(POOLS, self.namespace, name, body, subresource="scale")

    async def ask(self, vm: str, verb: str, body: Json | None = None) -> None:
        """Asks KubeVirt to start, stop or restart the VM, or another thing. It refuses while the one before is done."""

        async def asked() -> bool:
            try:
                await self.api.put_subresource(VM_REQUESTS, self.namespace, vm, verb, body)
            except ApiError as error:
                if error.status in (409, 429, 500, 503):
                    return False
                raise
            return True

        await eventually(asked, self.target.patience_seconds)

    # What there is

    async def objects(self, resource: Resource) -> dict[str, Json]:
        items, _ = await self.api.list(resource, self.namespace)
        return {each["metadata"]["name"]: each for each in items if "deletionTimestamp" not in each["metadata"]}

    async def uids(self, resource: Resource) -> dict[str, str]:
        return {name: each["metadata"]["uid"] for name, each in (await self.objects(resource)).items()}

    async def disks(self) -> dict[str, str]:
        """The UIDs of the claims of disks."""
        return disks(await self.objects(PVCS))

    async def remains(self, *resources: Resource) -> bool:
        """Whether there are such objects, also those that are being deleted."""
        return any([(await self.api.list(resource, self.namespace))[0] for resource in resources])

    async def get(self, resource: Resource, name: str) -> Json | None:
        try:
            return await self.api.get(resource, self.namespace, name)
        except NotFound:
            return None

    async def condition(self, resource: Resource, name: str, kind: str) -> Json:
        found = await self.get(resource, name) or {}
        conditions = at(found, "status", "conditions") or ()
        return next((each for each in conditions if each.get("type") == kind), {})

    async def launcher(self, vmi: Json) -> str:
        """The name of the Pod in which the VMI runs."""
        pods, _ = await self.api.list(
            PODS, self.namespace, label_selector=f"kubevirt.io/created-by={vmi['metadata']['uid']}"
        )
        running = [pod for pod in pods if at(pod, "status", "phase") == "Running"]
        here = [pod for pod in running if at(pod, "spec", "nodeName") == vmi["status"]["nodeName"]]
        return str(here[0]["metadata"]["name"])

    # What is waited for

    async def becomes(self, question: Callable[[], Any], wanted: Any) -> None:
        await until(question, wanted, self.target.patience_seconds)

    async def complete(self, name: str = "web") -> Json:
        """The pool, once it has all its VMs, all are available, and all have its template."""

        async def so() -> Json | None:
            found = await self.get(POOLS, name) or {}
            status, wanted = found.get("status") or {}, at(found, "spec", "replicas")
            # A VM is still ready for a moment after its VMI is deleted, but it is not available.
            numbers = "replicas", "readyReplicas", "availableReplicas", "updatedReplicas"
            counted = [status.get(key, 0) for key in numbers]
            observed = status.get("observedGeneration") == at(found, "metadata", "generation")
            return found if observed and counted == [wanted] * len(numbers) else None

        found = await self.patiently(so, "rollout", "history", name)
        return dict(found)

    async def runs(self, vm: str, *, besides: str = "") -> Json:
        """The ready VMI of the VM, which has another UID than `besides`."""

        async def so() -> Json | None:
            found = await self.get(VMIS, vm) or {}
            stays = "deletionTimestamp" not in (found.get("metadata") or {})
            ready = stays and (await self.condition(VMIS, vm, "Ready")).get("status") == "True"
            return found if ready and at(found, "metadata", "uid") not in (None, besides) else None

        return dict(await self.patiently(so, "why", f"vm/{vm}"))

    async def stops(self, vm: str) -> None:
        await self.becomes(lambda: self.get(VMIS, vm), None)

    async def patiently(self, holds: Callable[[], Any], *command: str) -> Any:
        """Waits; if it takes too long, the error says what this command of Poolhouse says."""
        try:
            return await eventually(holds, self.target.patience_seconds)
        except AssertionError as error:
            error.add_note(await self.poolhouse(*command, check=False))
            raise

    async def poolhouse(self, *arguments: str, check: bool = True) -> str:
        """The output of a command of Poolhouse in this namespace. It runs in this process, because a new one would take
        a second of a core."""
        context = ["--context", self.target.context] if self.target.context else []
        where = ["--kubeconfig", str(self.target.kubeconfig), *context, "-n", self.namespace]
        done = await asyncio.to_thread(CliRunner().invoke, poolhouse, [*arguments, *where])
        assert not check or done.exit_code == 0, done.output
        return done.output

    async def is_bound(self, claim: str) -> bool:
        return bool(at(await self.get(PVCS, claim) or {}, "status", "phase") == "Bound")

    async def make_vm(self, name: str, spec: Json, **metadata: Any) -> Json:
        return await self.create(VMS, name, spec, **metadata)


def disks(claims: dict[str, Json]) -> dict[str, str]:
    """The UIDs of claims, without those that CDI has while it fills another claim, which owns them."""
    owners = {name: controller_of(claim) or {} for name, claim in claims.items()}
    return {name: claim["metadata"]["uid"] for name, claim in claims.items() if owners[name].get("kind") != PVCS.kind}
