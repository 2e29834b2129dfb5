"""Carries a plan out. The only code of the pool that writes; it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from controllers.pool import disk_writes, revisions, template, three_way_merge
from controllers.pool.actions import (
    Action,
    Create,
    Delete,
    Heal,
    PruneRevision,
    ReleaseDisks,
    RemoveFinalizer,
    Restart,
    ReturnDisk,
    SaveRevision,
    Update,
)
from controllers.pool.batch import Batches, Outcome
from controllers.pool.machine import parse_vm
from controllers.pool.plan import Plan
from controllers.pool.snapshot import InvalidSpec, Pool, PoolSnapshot
from controllers.pool.stores import DATA_VOLUMES, POOLS, PVCS, REVISIONS, VMIS, VMS
from controllers.shared.creation import DefaultingCreator
from defaulter.contract import InvalidDocument
from kinds.pool import PoolStatus
from runtime.api import Api
from runtime.errors import AlreadyExists, ApiError, Conflict, NotFound
from runtime.resource import Resource

Json = dict[str, Any]
A = TypeVar("A", bound=Action)


@dataclass
class PoolWriter:
    api: Api
    batches: Batches
    prepare: DefaultingCreator

    async def __call__(self, state: PoolSnapshot, plan: Plan) -> Outcome:
        def planned(kind: type[A]) -> list[A]:
            return [action for action in plan.actions if isinstance(action, kind)]

        pool, api = state.pool, self.api
        # Before anything is waited for: other pools look meanwhile, and must know whose disks are about to be made.
        self.batches.expect(pool, planned(Create))
        outcomes = [
            await self.release(pool.namespace, planned(ReleaseDisks), pool),
            await self.batches.make(pool, planned(ReturnDisk), partial(disk_writes.give_back, api, pool.namespace)),
            await self.batches.make(pool, planned(RemoveFinalizer), partial(disk_writes.unmark, api, pool.namespace)),
            await self.batches.make(pool, planned(SaveRevision), partial(self._save, state), quiet=True),
            await self._create(state, planned(Create)),
            await self.batches.make(pool, planned(Delete), partial(self._delete, pool), most=state.burst),
            await self.batches.make(pool, planned(Heal), partial(self._heal, pool), most=state.burst),
            await self.batches.make(pool, planned(Update), partial(self._update, state, {}), most=state.burst),
            await self.batches.make(pool, planned(Restart), partial(self._restart, pool), most=state.burst),
            await self.batches.make(pool, planned(PruneRevision), partial(self._prune, pool), quiet=True),
        ]
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        undone = tuple(action for outcome in outcomes for action in outcome.undone)
        held = tuple(name for outcome in outcomes for name in outcome.held)
        return Outcome(failures[0] if failures else None, any(outcome.again for outcome in outcomes), undone, held)

    async def release(self, namespace: str, actions: Sequence[ReleaseDisks], pool: Pool | None = None) -> Outcome:
        """Without a pool for VMs whose pool is gone."""
        return await self.batches.make(pool, actions, partial(disk_writes.release, self.api, namespace), quiet=True)

    # One kind of action each

    async def _save(self, state: PoolSnapshot, action: SaveRevision) -> None:
        pool = state.pool
        owner = {"namespace": pool.namespace, "name": pool.name, "owner": template.owner(pool)}
        with suppress(AlreadyExists):  # by us, a moment ago: its name is its content
            await self.api.create(REVISIONS, revisions.document(state.revision, owner, revisions.content(pool.spec)))

    async def _create(self, state: PoolSnapshot, actions: Sequence[Create]) -> Outcome:
        if not actions:
            return Outcome()
        pool = state.pool
        # The first is asked about for all of them.
        actions = sorted(actions, key=lambda a: a.name in state.unwanted)
        try:
            documents = await self.prepare([template.build_vm(pool, a.ordinal, state.revision) for a in actions])
        except (InvalidDocument, ApiError) as error:
            return self.batches.not_begun(pool, actions, error)
        prepared = dict(zip(actions, documents, strict=True))
        held: list[str] = []

        async def create(action: Create) -> None:
            if action.anew and (disk := await self._old_disk(prepared[action])):
                held.append(action.name)
                raise Conflict(f"{disk} of the VM before it is still there", status=409)
            await self.prepare.create(prepared[action])

        outcome = await self.batches.make(pool, actions, create, most=state.burst)
        return replace(outcome, held=tuple(held))

    async def _delete(self, pool: Pool, a: Delete) -> None:
        if a.keep_disks:
            await disk_writes.delete_keeping(self.api, pool.namespace, pool.uid, a)
        else:
            await self.api.delete(
                VMS,
                pool.namespace,
                a.name,
                uid=a.uid,
                resource_version=a.resource_version,
                propagation="Background",
            )

    async def _old_disk(self, vm: Json) -> str:
        """Something of the VM before it that is still there, or nothing."""
        namespace = vm["metadata"]["namespace"]
        for disk in template.disk_names(vm):
            for resource in (DATA_VOLUMES, PVCS):
                with suppress(NotFound):
                    metadata = (await self.api.get(resource, namespace, disk))["metadata"]
                    # One without an owner is nobody's leftover: it was brought, or kept, for this VM.
                    if metadata.get("ownerReferences") or "deletionTimestamp" in metadata:
                        return f"{resource.kind} {disk}"
        return ""

    async def _heal(self, pool: Pool, a: Heal) -> None:
        # Each of its failures is written into it, so the version that was planned from is an old one as a rule.
        live = parse_vm(await self.api.get(VMS, pool.namespace, a.name))
        if live.uid != a.uid or live.deleting or live.ready or not live.failures:
            raise Conflict(f"{a.name} does not fail any more", status=409)
        # In the foreground: the name is free only when the disks are gone, so the new VM never gets the old ones.
        await self.api.delete(
            VMS,
            pool.namespace,
            a.name,
            uid=a.uid,
            resource_version=live.resource_version,
            propagation="Foreground",
        )

    async def _update(self, state: PoolSnapshot, templates: dict[str, Pool | None], a: Update) -> None:
        pool = state.pool
        live = await self.api.get(VMS, pool.namespace, a.name)
        if live["metadata"]["uid"] != a.uid or "deletionTimestamp" in live["metadata"]:
            raise Conflict(f"{a.name} is another VM by now", status=409)
        if a.before not in templates:
            templates[a.before] = await self._before(state, a.before)
        before = templates[a.before]
        base = template.build_vm(before, a.ordinal, state.known[a.before]) if before is not None else None
        await self.api.replace(
            VMS, three_way_merge.merge_template(live, base, template.build_vm(pool, a.ordinal, state.revision))
        )

    async def _before(self, state: PoolSnapshot, label: str) -> Pool | None:
        """The pool as it was when it had the template of this label."""
        if label not in state.known:
            return None
        try:
            document = await self.api.get(REVISIONS, state.pool.namespace, state.known[label].name)
        except NotFound:
            return None
        return replace(state.pool, spec=state.pool.spec.model_copy(update=revisions.read(document)))

    async def _restart(self, pool: Pool, a: Restart) -> None:
        if a.asks:
            path = Resource("subresources.kubevirt.io", "v1", VMS.plural, VMS.kind).path(
                pool.namespace, a.name, "restart"
            )
            await self.api.request("PUT", path, body={})
        else:
            await self.api.delete(VMIS, pool.namespace, a.name, uid=a.guest)

    async def _prune(self, pool: Pool, a: PruneRevision) -> None:
        with suppress(NotFound):
            await self.api.delete(REVISIONS, pool.namespace, a.name)

    async def write_status(self, pool: Pool | InvalidSpec, status: PoolStatus) -> None:
        # With null for what is not there: a merge would keep it. With the UID, so that it never lands on another pool.
        nothing = dict.fromkeys(status.model_dump(by_alias=True))
        change = {"metadata": {"uid": pool.uid}, "status": {**nothing, **status.json()}}
        with suppress(NotFound):  # it has been deleted since: there is nobody left to tell
            await self.api.patch(POOLS, pool.namespace, pool.name, change, subresource="status")
