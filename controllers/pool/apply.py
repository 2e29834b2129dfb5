"""Carries a plan out. The only code of the pool that writes; it decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controllers.pool import disks, revisions, template
from controllers.pool.actions import Create, Delete, ReleaseDisks, SaveRevision
from controllers.pool.observe import MACHINES, POOLS, REVISIONS
from controllers.pool.plan import Plan
from controllers.pool.prepare import Prepare
from controllers.pool.state import Failure, Pool, State
from defaulter.contract import Refused
from kinds.pool import PoolStatus
from runtime.api import Api
from runtime.batches import slow_start
from runtime.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable, Unreachable
from runtime.events import Events
from runtime.expectations import Expectations
from runtime.resource import Key

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    failure: Failure | None = None
    """to be said in the pool's status"""
    again: bool = False
    """something was not done, whether or not that is anybody's fault"""


@dataclass
class Apply:
    api: Api
    events: Events
    expectations: Expectations[Key]
    prepare: Prepare
    clock: Callable[[], float]

    async def __call__(self, state: State, plan: Plan) -> Outcome:
        outcomes = [
            await self._save(state, [a for a in plan.actions if isinstance(a, SaveRevision)]),
            await self._create(state, [a for a in plan.actions if isinstance(a, Create)]),
            await self._delete(state, [a for a in plan.actions if isinstance(a, Delete)]),
            await self._release(state.pool.namespace, [a for a in plan.actions if isinstance(a, ReleaseDisks)]),
        ]
        return Outcome(
            next((o.failure for o in outcomes if o.failure), None),
            any(o.again for o in outcomes),
        )

    async def _save(self, state: State, actions: Sequence[SaveRevision]) -> Outcome:
        pool = state.pool
        for _ in actions:
            owner = {"namespace": pool.namespace, "name": pool.name, "owner": template.owner(pool)}
            try:
                await self.api.create(REVISIONS, revisions.document(state.revision, owner, pool.spec.template))
            except AlreadyExists:
                pass  # by us, a moment ago: its name is its content
            except ApiError as error:
                return self._refused(pool, "FailedCreate", f"cannot save revision {state.revision.name}: {error}")
        return Outcome()

    async def _create(self, state: State, actions: Sequence[Create]) -> Outcome:
        if not actions:
            return Outcome()
        pool = state.pool
        try:
            documents = await self.prepare([template.vm(pool, a.ordinal, state.revision) for a in actions])
        except (Refused, ApiError) as error:
            return self._refused(pool, "FailedCreate", f"cannot create {actions[0].name}: {error}")
        names = [a.name for a in actions]
        # Before the first call, all of them: an event that comes before its call's answer must find itself expected.
        self.expectations.expect(pool.key, creates=names, now=self.clock())
        results = await slow_start([self._creating(document) for document in documents], most=state.burst)
        self.expectations.gave_up(pool.key, creates=names[len(results) :])
        refusals = []
        for action, result in zip(actions, results, strict=False):
            if isinstance(result, Exception):
                if _surely_not_done(result):
                    self.expectations.gave_up(pool.key, creates=[action.name])
                if not isinstance(result, AlreadyExists):
                    refusals.append(f"cannot create {action.name}: {result}")
            else:
                self._say(pool, "SuccessfulCreate", f"created VM {action.name}: {action.reason}", "Create")
        if refusals:
            return self._refused(pool, "FailedCreate", refusals[0])
        return Outcome(again=any(isinstance(r, Exception) for r in results))

    def _creating(self, document: Json) -> Callable[[], Awaitable[None]]:
        async def create() -> None:
            self.prepare.saw(await self.api.create(MACHINES, document))

        return create

    async def _delete(self, state: State, actions: Sequence[Delete]) -> Outcome:
        if not actions:
            return Outcome()
        pool = state.pool
        self.expectations.expect(pool.key, deletes=[a.uid for a in actions], now=self.clock())
        results = await slow_start([self._deleting(pool.namespace, a) for a in actions], most=state.burst)
        self.expectations.gave_up(pool.key, deletes=[a.uid for a in actions[len(results) :]])
        refusals = []
        for action, result in zip(actions, results, strict=False):
            if isinstance(result, Exception):
                if _surely_not_done(result):
                    self.expectations.gave_up(pool.key, deletes=[action.uid])
                # It is gone, or it has changed since it was chosen: the next plan knows more.
                if not isinstance(result, NotFound | Conflict):
                    refusals.append(f"cannot delete {action.name}: {result}")
            else:
                kept = ", its disks are kept" if action.keep_disks else ""
                self._say(pool, "SuccessfulDelete", f"deleted VM {action.name}{kept}: {action.reason}", "Delete")
        if refusals:
            return self._refused(pool, "FailedDelete", refusals[0])
        return Outcome(again=any(isinstance(r, Exception) for r in results))

    def _deleting(self, namespace: str, action: Delete) -> Callable[[], Awaitable[None]]:
        async def delete() -> None:
            if action.keep_disks:
                await disks.delete_keeping(self.api, namespace, action.name, action.uid, action.resource_version)
            else:
                await self.api.delete(
                    MACHINES,
                    namespace,
                    action.name,
                    uid=action.uid,
                    resource_version=action.resource_version,
                    propagation="Background",
                )

        return delete

    async def _release(self, namespace: str, actions: Sequence[ReleaseDisks]) -> Outcome:
        def releasing(a: ReleaseDisks) -> Callable[[], Awaitable[None]]:
            return lambda: disks.release(self.api, namespace, a.name, a.uid, a.disks, a.owner)

        results = await slow_start([releasing(a) for a in actions])
        failed = [r for r in results if isinstance(r, Exception) and not isinstance(r, NotFound | Conflict)]
        if failed:
            return Outcome(Failure("FailedDelete", f"cannot release kept disks: {failed[0]}"), True)
        return Outcome(again=any(isinstance(r, Exception) for r in results))

    async def release(self, namespace: str, actions: Sequence[ReleaseDisks]) -> Outcome:
        """For VMs whose pool is gone."""
        return await self._release(namespace, actions)

    async def write_status(self, pool: Pool, status: PoolStatus) -> None:
        # With null for what is not there: a merge would keep it. With the UID, so that it never lands on another pool.
        change = {"metadata": {"uid": pool.uid}, "status": status.model_dump(mode="json", by_alias=True)}
        await self.api.patch(POOLS, pool.namespace, pool.name, change, subresource="status")

    def _say(self, pool: Pool, reason: str, note: str, action: str) -> None:
        self.events.emit(_reference(pool), "Normal", reason, note, action=action)

    def _refused(self, pool: Pool, reason: str, message: str) -> Outcome:
        self.events.emit(_reference(pool), "Warning", reason, message, action=reason.removeprefix("Failed"))
        return Outcome(Failure(reason, message[:1000]), True)


def _surely_not_done(error: Exception) -> bool:
    """An answer that never came leaves open whether it was done; its event, or the expectation's timeout, will tell."""
    return not isinstance(error, Unreachable | Unavailable | TimeoutError)


def _reference(pool: Pool) -> dict[str, str]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachinePool",
        "namespace": pool.namespace,
        "name": pool.name,
        "uid": pool.uid,
    }
