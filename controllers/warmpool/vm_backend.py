"""Machines that are VirtualMachines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from controllers.warmpool import health, ssh_keys, vm_manifest
from controllers.warmpool.audit_log import log_event
from controllers.warmpool.backends import (
    Change,
    CreateRequest,
    Health,
    OutcomeUnknown,
    WriteConflict,
    check_transition,
    is_nobody,
)
from controllers.warmpool.warm_vm import Owner, StandbyMode, WarmVM
from controllers.warmpool.warm_vm import parse_warm_vm as view
from kinds import meta
from kinds.warmpool import Readiness
from runtime.api import Api
from runtime.errors import OUTCOME_UNKNOWN, AlreadyExists, ApiError, Conflict, NotFound
from runtime.resource import Resource

log = logging.getLogger(__name__)

Json = dict[str, Any]

VMS = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")
VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
_VM_VERBS = Resource("subresources.kubevirt.io", "v1", VMS.plural, VMS.kind)
_VMI_VERBS = Resource("subresources.kubevirt.io", "v1", VMIS.plural, VMIS.kind)


class Preparer(Protocol):
    """Completes VMs that the API server would store undefaulted."""

    async def __call__(self, documents: Sequence[Json]) -> list[Json]: ...

    async def create(self, document: Json) -> Json: ...


class VMBackend:
    """The API server's VirtualMachines as machines of warm pools."""

    def __init__(self, api: Api, prepare: Preparer, now: Callable[[], datetime]) -> None:
        self._api, self._prepare, self._now = api, prepare, now

    async def create(self, order: CreateRequest) -> WarmVM:
        made = await self._create(order)
        if ssh_keys.wants_key(order.template):
            await self._create_secret(made)
        return made

    async def _create(self, order: CreateRequest) -> WarmVM:
        (document,) = await self._prepare([vm_manifest.build_vm(order)])
        try:
            return view(await self._prepare.create(document))
        except AlreadyExists:
            found = await self._get(order.namespace, order.name)
            if found is not None and _is_of(found, order):
                return found
            raise
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error

    async def _create_secret(self, m: WarmVM) -> None:
        try:
            # One that is there is of a call whose answer was lost; before anything is put into it, it is looked at.
            with suppress(AlreadyExists):
                await self._api.create(ssh_keys.SECRETS, ssh_keys.secret(m))
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error
        except ApiError:
            with suppress(ApiError):  # it would wait for its Secret for ever
                await self._api.delete(VMS, m.namespace, m.name, uid=m.uid, propagation="Background")
            raise

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        found, _ = await self._api.list(VMS, namespace, label_selector=f"{meta.CLAIM_UID}={claim_uid}")
        return [view(each) for each in found]

    async def read(self, machine: WarmVM) -> WarmVM | None:
        found = await self._get(machine.namespace, machine.name)
        return found if found is not None and found.uid == machine.uid else None

    async def change(self, machine: WarmVM, change: Change) -> WarmVM:
        check_transition(machine, change)
        patch = {"metadata": _metadata(machine, change, self._now())}
        try:
            return view(await self._api.patch(VMS, machine.namespace, machine.name, patch))
        except (Conflict, NotFound) as error:
            raise WriteConflict(str(error)) from error
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error

    async def check(self, machine: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        found = health.vmi_health(machine, readiness)
        return found if found.verdict != "Healthy" else await health.probe(machine, readiness, timeout_seconds)

    async def activate(self, machine: WarmVM) -> None:
        if machine.run_strategy == "Halted":
            await self._ask(_VM_VERBS, machine, "start")
        elif machine.vmi is None or machine.vmi.paused or machine.standby == "Paused":
            await self._ask(_VMI_VERBS, machine, "unpause")

    async def stand_by(self, machine: WarmVM, mode: StandbyMode) -> None:
        if mode == "Running":
            await self.activate(machine)
        elif mode == "Paused":
            await self._ask(_VMI_VERBS, machine, "pause")
        elif machine.run_strategy != "Halted":
            await self._ask(_VM_VERBS, machine, "stop")

    async def terminate(self, machine: WarmVM, reason: str) -> bool:
        try:
            await self._api.delete(
                VMS,
                machine.namespace,
                machine.name,
                uid=machine.uid,
                resource_version=machine.resource_version,
                propagation="Background",
            )
        except NotFound:
            return True
        except Conflict:
            return False
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error
        log_event(log, "MachineDeleting", f"deleted {machine.name}: {reason}", machine=machine, reason=reason)
        return True

    async def _ask(self, resource: Resource, m: WarmVM, verb: str) -> None:
        """Idempotent: KubeVirt answers 409 to who asks for what is already so, and so it does while it can't be done.
        Which of the two shows in the machine, where the caller looks anyway."""
        try:
            with suppress(Conflict):
                await self._api.request("PUT", resource.path(m.namespace, m.name, verb), body={})
        except NotFound as error:
            raise WriteConflict(str(error)) from error
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error

    async def _get(self, namespace: str, name: str) -> WarmVM | None:
        try:
            return view(await self._api.get(VMS, namespace, name))
        except NotFound:
            return None
        except OUTCOME_UNKNOWN as error:
            raise OutcomeUnknown(str(error)) from error


def _is_of(found: WarmVM, order: CreateRequest) -> bool:
    if found.deleting or not found.owned_by(order.owner.uid):
        return False
    return found.claim_uid == order.claim_uid and found.pool_uid == order.pool_uid


def _metadata(m: WarmVM, change: Change, now: datetime) -> Json:
    """With the resourceVersion, which makes a merge a compare-and-swap, and the UID, so that it never lands on another
    machine of the same name."""
    labels, annotations = dict(change.labels), dict(change.annotations)
    if change.state is not None:
        labels[meta.WARM_STATE] = change.state.value
        if change.state is not m.state:
            annotations[meta.STATE_SINCE] = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if change.claim_uid is not None:
        labels[meta.CLAIM_UID] = change.claim_uid or None
    metadata: Json = {"resourceVersion": m.resource_version, "uid": m.uid}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    if change.owner is not None:
        owners: tuple[Owner, ...] = m.other_owners if is_nobody(change.owner) else (*m.other_owners, change.owner)
        metadata["ownerReferences"] = [each.json() for each in owners]
    return metadata
