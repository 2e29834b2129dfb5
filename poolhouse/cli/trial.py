"""Performs the steps of a behaviour of KubeVirt with one VM, for `poolhouse conformance`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.behaviours.steps import (
    ANY,
    Behaviour,
    Call,
    Change,
    Create,
    Delete,
    Evacuates,
    Evict,
    Gone,
    Reaches,
    Refusal,
    Remember,
    Replaced,
    Shows,
    Step,
    Target,
)

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

POLL_SECONDS = 0.2
CLEANUP_SECONDS = 120.0
LABELS = {meta.PART_OF: meta.POOLHOUSE, meta.DEFAULTING: meta.DISABLED}
"""labels of every object, so that Poolhouse leaves the VMs alone where it is installed"""

Outcome = Literal["ok", "differs", "skipped"]


@dataclass(frozen=True)
class Result:
    name: str
    outcome: Outcome
    message: str = ""


class Differs(Exception):
    """KubeVirt did not behave as a step expects."""


async def shielded(work: Awaitable[None]) -> None:
    """Finishes the work even if the task is cancelled, as by Ctrl-C."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        async with asyncio.timeout(CLEANUP_SECONDS):
            await task
        raise


class Trial:
    """Performs the steps of one behaviour with one VM."""

    def __init__(self, api: Api, namespace: str, name: str, patience_seconds: float) -> None:
        from poolhouse.api.kinds.kubevirt_snapshots import VM_RESTORE, VM_SNAPSHOT
        from poolhouse.runtime.resource import VMIS, VMS, Resource

        self._api, self._namespace, self._name, self._patience = api, namespace, name, patience_seconds
        self._resources: dict[Target, Resource] = {
            "VM": VMS,
            "VMI": VMIS,
            "Snapshot": Resource.of(VM_SNAPSHOT),
            "Restore": Resource.of(VM_RESTORE),
        }
        self._uid = ""

    async def run(self, behaviour: Behaviour) -> Result:
        from poolhouse.runtime.errors import ApiError, Unreachable

        try:
            for number, step in enumerate(behaviour.steps, 1):
                try:
                    await self._perform(step)
                except Unreachable:
                    raise
                except (Differs, ApiError) as error:
                    where = f"step {number} of {len(behaviour.steps)}, {describe(step)}: {error}"
                    return Result(behaviour.name, "differs", where)
            return Result(behaviour.name, "ok")
        finally:
            created = [step.target for step in behaviour.steps if isinstance(step, Create)]
            await shielded(self._delete_all(dict.fromkeys(("VM", "VMI", *created))))

    async def _perform(self, step: Step) -> None:
        match step:
            case Create(spec, refused, target):
                await self._send(refused, self._api.create(self._resources[target], self._document(spec, target)))
            case Change(target, patch, refused):
                await self._send(refused, self._api.patch(self._resources[target], self._namespace, self._name, patch))
            case Call():
                await self._call(step)
            case Reaches():
                await self._reach(step)
            case Shows(target, values):
                await self._until(lambda: self._shown(target, values))
            case Remember():
                self._uid = str(((await self._get("VMI")) or {}).get("metadata", {}).get("uid") or "")
            case Evict(refused):
                await self._send(refused, self._evict(await self._launcher()))
            case Evacuates():
                await self._until(self._evacuation)
            case Replaced():
                await self._until(self._replacement)
            case Delete(target):
                await self._api.delete(self._resources[target], self._namespace, self._name)
            case Gone(target):
                await self._until(lambda: self._absence(target))

    def _document(self, spec: Json, target: Target) -> Json:
        resource = self._resources[target]
        # Not every cluster allows the network binding that KubeVirt would choose.
        domain = {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": False}}
        inner = {"domain": domain, "terminationGracePeriodSeconds": 0}
        vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": self._name}
        kinds: dict[Target, Json] = {
            "VM": {"template": {"spec": inner}},
            "VMI": inner,
            "Snapshot": {"source": vm},
            "Restore": {"target": vm, "virtualMachineSnapshotName": self._name},
        }
        metadata = {"name": self._name, "namespace": self._namespace, "labels": dict(LABELS)}
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return {**document, "spec": merged(kinds[target], spec)}

    async def _send(self, refused: Refusal | None, request: Awaitable[Any]) -> None:
        from poolhouse.runtime.errors import ApiError

        if refused is None:
            await request
            return
        text = refused.text.replace("%s", self._name)
        try:
            await request
        except ApiError as error:
            if error.status != refused.code or text not in error.message:
                raise Differs(f"expected {refused.code} {text!r}, got {error.status} {error.message!r}") from None
        else:
            raise Differs(f"expected {refused.code} {text!r}, but the request was accepted")

    async def _call(self, step: Call) -> None:
        from poolhouse.runtime.resource import Resource

        resource = self._resources[step.target]
        path = Resource("subresources.kubevirt.io", "v1", resource.plural, "").path(
            self._namespace, self._name, step.verb
        )
        request = self._api.respond("PUT", path, body=step.options, headers={"Accept": step.accept})
        if step.refused is not None:
            await self._send(step.refused, request)
            return
        code, body = await request
        if (code, body) != (step.code, b""):
            raise Differs(f"expected {step.code} without a body, got {code} {body[:200].decode(errors='replace')!r}")

    async def _reach(self, step: Reaches) -> None:
        seen: list[str] = []

        async def problem() -> str | None:
            status = (((await self._get("VM")) or {}).get("status") or {}).get("printableStatus")
            if status == step.status:
                return None
            if status and status not in seen:
                seen.append(status)
                if status not in step.through:
                    raise Differs(f"expected {' or '.join((*step.through, step.status))}, got {status}")
            return f"expected {step.status}, got {status or 'no status'}"

        await self._until(problem)

    async def _shown(self, target: Target, values: Any) -> str | None:
        document = await self._get(target)
        if document is None:
            return f"expected {_listed(values.items())}, but the {target} does not exist"
        different = [(path, value) for path, value in values.items() if not _matches(read(document, path), value)]
        if not different:
            return None
        got = _listed((path, read(document, path)) for path, _ in different)
        return f"expected {_listed(different)}, got {got}"

    async def _launcher(self) -> str:
        """Waits for the VMI's launcher Pod, and returns its name."""
        from poolhouse.runtime.resource import PODS

        uid, found = read(await self._get("VMI") or {}, "metadata.uid"), list[str]()

        async def problem() -> str | None:
            selector = f"{meta.KUBEVIRT_CREATED_BY}={uid}"
            pods, _ = await self._api.list(PODS, self._namespace, label_selector=selector)
            found.extend(pod["metadata"]["name"] for pod in pods)
            return None if found else f"expected a Pod with the label {selector}, got none"

        await self._until(problem)
        return found[0]

    async def _evict(self, pod: str) -> None:
        from poolhouse.runtime.resource import PODS

        metadata = {"name": pod, "namespace": self._namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        await self._api.request("POST", PODS.path(self._namespace, pod, "eviction"), body=body)

    async def _evacuation(self) -> str | None:
        from poolhouse.api.kinds.kubevirt import VMI_MIGRATION
        from poolhouse.runtime.resource import Resource

        found, _ = await self._api.list(Resource.of(VMI_MIGRATION), self._namespace)
        ours = (each for each in found if read(each, "spec.vmiName") == self._name)
        if any(read(each, f"metadata.annotations.{meta.KUBEVIRT_EVACUATION}") for each in ours):
            return None
        return f"expected a migration with the annotation {meta.KUBEVIRT_EVACUATION}, got none"

    async def _replacement(self) -> str | None:
        vmi = await self._get("VMI")
        uid, phase = read(vmi or {}, "metadata.uid"), read(vmi or {}, "status.phase")
        if uid not in (None, self._uid) and phase == "Running":
            return None
        return f"expected another VMI that runs, got {'the same' if uid == self._uid else uid or 'none'} ({phase})"

    async def _absence(self, target: Target) -> str | None:
        return None if await self._get(target) is None else f"the {target} still exists"

    async def _until(self, problem: Callable[[], Awaitable[str | None]]) -> None:
        """Calls `problem` until it returns None. Raises `Differs` with the last problem after the patience."""
        last: str | None = ""
        try:
            async with asyncio.timeout(self._patience):
                while last := await problem():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise Differs(f"{last} after {self._patience:g} s") from None

    async def _get(self, target: Target) -> Json | None:
        from poolhouse.runtime.api import find

        return await find(self._api, self._resources[target], self._namespace, self._name)

    async def _delete_all(self, targets: Iterable[Target]) -> None:
        """Deletes the VM, so that the next behaviour has its capacity."""
        from poolhouse.runtime.errors import ApiError

        for target in targets:
            with contextlib.suppress(ApiError):
                await self._api.delete(self._resources[target], self._namespace, self._name, grace_seconds=0)


def merged(base: Json, changes: Json) -> Json:
    """The base with the changes, which are a JSON merge patch."""
    result = copy.deepcopy(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def read(document: Any, path: str) -> Any:
    """The value at a path such as `status.phase`. `conditions.TYPE` is a condition's status, with its reason if the
    status is False or the reason is known."""
    if path.startswith("conditions."):
        conditions = ((document.get("status") or {}).get("conditions")) or ()
        found = next((each for each in conditions if each.get("type") == path.removeprefix("conditions.")), None)
        return None if found is None else "/".join(filter(None, (found.get("status"), found.get("reason"))))
    value = document
    parts = path.split(".")
    while parts:
        if isinstance(value, list):
            index = int(parts.pop(0))
            value = value[index] if index < len(value) else None
        elif isinstance(value, dict):
            # A key such as kubevirt.io/nodeName contains dots.
            count = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in value), 1)
            value = value.get(".".join(parts[:count]))
            parts = parts[count:]
        else:
            return None
    return value


def _matches(found: Any, wanted: Any) -> bool:
    if wanted is ANY:
        return found not in (None, "")
    return bool(found == wanted or (isinstance(found, str) and found.split("/")[0] == wanted))


def _listed(pairs: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{path} {_value(value)}" for path, value in pairs)


def _value(value: Any) -> str:
    return repr(value) if value is ANY else json.dumps(value)


def describe(step: Step) -> str:
    match step:
        case Call(target, verb):
            return f"{verb} the {target}"
        case Reaches(status):
            return f"wait for {status}"
        case Create(target=target) | Delete(target):
            return f"{type(step).__name__.lower()} the {target}"
        case Change(target):
            return f"change the {target}"
        case Shows(target):
            return f"look at the {target}"
        case Gone(target):
            return f"wait until the {target} is gone"
        case Evict():
            return "evict the launcher Pod"
        case Evacuates():
            return "wait for the migration"
        case _:
            return "wait for another VMI" if isinstance(step, Replaced) else "remember the VMI"
