"""Carries out what was planned. The only code of this package that writes; it decides nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from apimachinery.unstructured import Json
from controllers.migrationpolicy.observe import INSTANCES, POLICIES, UPSTREAM
from controllers.migrationpolicy.plan import Action, Create, Delete, Repair, Stamp
from controllers.migrationpolicy.state import Instance, Policy
from kinds import meta
from migrationpolicies.upstream import API_VERSION
from runtime.api import Api
from runtime.errors import AlreadyExists, Conflict, NotFound
from runtime.events import EventRecorder, EventType


class Apply:
    def __init__(self, api: Api, events: EventRecorder) -> None:
        self._api = api
        self._events = events

    async def __call__(self, policy: Policy, action: Action) -> None:
        """Raises what the API server answers, but for news that comes as an event as well."""
        try:
            match action:
                case Create(spec):
                    await self._api.create(UPSTREAM, _document(policy, spec))
                case Repair(uid, spec, reason):
                    await self._repair(policy, uid, spec)
                    self.say(policy, "Normal", "Repaired", f"KubeVirt's migration policy: {reason}")
                case Delete(uid):
                    await self._api.delete(UPSTREAM, None, policy.name, uid=uid)
        except AlreadyExists:
            pass  # somebody's, or ours of a moment ago: which of them, its event will tell
        except NotFound:
            if isinstance(action, Create):
                raise  # the kind itself is gone

    async def stamp(self, instance: Instance, action: Stamp) -> None:
        # With its UID: one of the same name that came since has labels of its own, and refuses it (Invalid).
        patch = {"metadata": {"uid": action.uid, "labels": {meta.MIGRATION_POLICY: action.policy}}}
        with suppress(NotFound, Conflict):  # another instance then, whose own event says what to do
            await self._api.patch(INSTANCES, instance.namespace, instance.name, patch)

    async def write_status(self, policy: Policy, status: Json) -> None:
        # Nothing tells one of the same name that came since apart here; its own event has its status said soon after.
        with suppress(NotFound):
            await self._api.patch(POLICIES, None, policy.name, {"status": status}, subresource="status")

    def say(self, policy: Policy, type: EventType, reason: str, note: str) -> None:
        regarding = {
            "apiVersion": POLICIES.api_version,
            "kind": POLICIES.kind,
            "name": policy.name,
            "uid": policy.uid,
        }
        self._events.emit(regarding, type, reason, note, action="Enforce")

    async def _repair(self, policy: Policy, uid: str, spec: Json) -> None:
        """Writes over what it has just read, so that nobody's write in between is lost: Conflict, then again."""
        found = await self._api.get(UPSTREAM, None, policy.name)
        if found["metadata"]["uid"] == uid:
            metadata: dict[str, Any] = {**found["metadata"], **_ours(policy)}
            metadata["labels"] = {**(found["metadata"].get("labels") or {}), **metadata["labels"]}
            await self._api.replace(UPSTREAM, {**found, "metadata": metadata, "spec": spec})


def _document(policy: Policy, spec: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": UPSTREAM.kind,
        "metadata": {"name": policy.name, **_ours(policy)},
        "spec": spec,
    }


def _ours(policy: Policy) -> Json:
    owner = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "name": policy.name,
        "uid": policy.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"labels": {meta.MANAGED_BY: meta.POOLHOUSE}, "ownerReferences": [owner]}
