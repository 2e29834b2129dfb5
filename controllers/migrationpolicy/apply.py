"""Writes KubeVirt's policies and the labels of VMIs."""

from contextlib import suppress
from typing import Any

from controllers.migrationpolicy.observe import POLICIES, Policy, VMILabels
from controllers.migrationpolicy.plan import Action, CreateUpstream, DeleteUpstream, LabelVMI, RepairUpstream
from controllers.migrationpolicy.reasons import PolicyEvent
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.migrationpolicies.upstream import API_VERSION
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, Conflict, NotFound
from poolhouse.runtime.events import EventRecorder, EventType
from poolhouse.runtime.resource import UPSTREAM_POLICIES, VMIS


class PolicyWriter:
    def __init__(self, api: Api, events: EventRecorder) -> None:
        self._api = api
        self._events = events

    async def apply(self, policy: Policy, action: Action) -> None:
        """Executes the action. Raises the API server's error, unless the next event of the object causes a new plan."""
        try:
            match action:
                case CreateUpstream(spec):
                    await self._api.create(UPSTREAM_POLICIES, _document(policy, spec))
                case RepairUpstream(uid, spec, reason):
                    await self._repair(policy, uid, spec)
                    self.emit(policy, "Normal", PolicyEvent.REPAIRED, f"KubeVirt's migration policy: {reason}")
                case DeleteUpstream(uid):
                    await self._api.delete(UPSTREAM_POLICIES, None, policy.name, uid=uid)
        except AlreadyExists:
            pass  # the event of the existing policy causes a new plan
        except NotFound:
            if isinstance(action, CreateUpstream):
                raise  # the CRD was removed

    async def label(self, vmi: VMILabels, action: LabelVMI) -> None:
        # With the UID, the API server refuses (Invalid) to label a new VMI of the same name.
        patch = {"metadata": {"uid": action.uid, "labels": {meta.MIGRATION_POLICY: action.policy}}}
        with suppress(NotFound, Conflict):  # the event of the new VMI causes a new plan
            await self._api.patch(VMIS, vmi.namespace, vmi.name, patch)

    def emit(self, policy: Policy, type: EventType, reason: str, note: str) -> None:
        regarding = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "name": policy.name, "uid": policy.uid}
        self._events.emit(regarding, type, reason, note, action="Enforce")

    async def _repair(self, policy: Policy, uid: str, spec: Json) -> None:
        """Replaces the policy that it has just read, so that a concurrent write of another client causes a Conflict."""
        found = await self._api.get(UPSTREAM_POLICIES, None, policy.name)
        if found["metadata"]["uid"] == uid:
            metadata: dict[str, Any] = {**found["metadata"], **_ownership(policy)}
            metadata["labels"] = {**(found["metadata"].get("labels") or {}), **metadata["labels"]}
            await self._api.replace(UPSTREAM_POLICIES, {**found, "metadata": metadata, "spec": spec})


def _document(policy: Policy, spec: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": UPSTREAM_POLICIES.kind,
        "metadata": {"name": policy.name, **_ownership(policy)},
        "spec": spec,
    }


def _ownership(policy: Policy) -> Json:
    owner = controller_reference(POLICIES.api_version, POLICIES.kind, policy.name, policy.uid)
    return {"labels": {meta.MANAGED_BY: meta.POOLHOUSE}, "ownerReferences": [owner]}
