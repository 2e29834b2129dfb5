"""Carries a plan out. The only code of the pool that writes; it decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from controllers.pool import disks, merge, revisions, template
from controllers.pool.actions import (
    Action,
    Create,
    Delete,
    Heal,
    PruneRevision,
    ReleaseDisks,
    Restart,
    ReturnDisk,
    SaveRevision,
    Unmark,
    Update,
)
from controllers.pool.machine import Machine, machine
from controllers.pool.plan import Plan
from controllers.pool.state import Failure, Misfit, Pool, State
from controllers.pool.stores import CLAIMS, DATA_VOLUMES, GUESTS, MACHINES, POOLS, REVISIONS
from controllers.prepare import Prepare
from defaulter.contract import Refused
from kinds import meta
from kinds.pool import PoolStatus
from runtime.api import Api
from runtime.batches import slow_start
from runtime.errors import AlreadyExists, ApiError, Conflict, NotFound, Throttled, Unavailable, Unreachable
from runtime.events import Events
from runtime.expectations import Expectations
from runtime.resource import Resource

Json = dict[str, Any]
A = TypeVar("A", bound=Action)

FAILURE_CHARACTERS = 1000


@dataclass(frozen=True)
class Outcome:
    failure: Failure | None = None
    """to be said in the pool's status"""
    again: bool = False
    """something was not done, whether or not that is anybody's fault"""
    undone: tuple[Action, ...] = ()
    """what was certainly not done"""


class NotSent(Exception):
    """An earlier batch failed."""


PASSING = (AlreadyExists, Conflict, NotFound, Throttled, Unreachable, NotSent)
"""Nobody's fault: somebody was first, it has changed since it was chosen, the server is busy or away. The next plan
knows more."""


@dataclass
class Apply:
    api: Api
    events: Events
    expectations: Expectations[str]
    """by UID of the pool"""
    prepare: Prepare
    clock: Callable[[], float]
    _trusted: set[tuple[str, str]] = field(default_factory=set)
    """pools and verbs whose last calls were all accepted: the next ones need not begin one by one"""

    async def __call__(self, state: State, plan: Plan) -> Outcome:
        def planned(kind: type[A]) -> list[A]:
            return [action for action in plan.actions if isinstance(action, kind)]

        pool, api = state.pool, self.api
        outcomes = [
            await self.release(pool.namespace, planned(ReleaseDisks), pool),
            await self._all(pool, planned(ReturnDisk), partial(disks.give_back, api, pool.namespace)),
            await self._all(pool, planned(Unmark), partial(disks.unmark, api, pool.namespace)),
            await self._all(pool, planned(SaveRevision), partial(self._save, state), quiet=True),
            await self._create(state, planned(Create)),
            await self._all(pool, planned(Delete), partial(self._delete, pool), most=state.burst),
            await self._all(pool, planned(Heal), partial(self._heal, pool), most=state.burst),
            await self._all(pool, planned(Update), partial(self._update, state, {}), most=state.burst),
            await self._all(pool, planned(Restart), partial(self._restart, pool), most=state.burst),
            await self._all(pool, planned(PruneRevision), partial(self._prune, pool), quiet=True),
        ]
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        undone = tuple(action for outcome in outcomes for action in outcome.undone)
        return Outcome(failures[0] if failures else None, any(outcome.again for outcome in outcomes), undone)

    def forget(self, uid: str) -> None:
        """The pool is gone."""
        self._trusted -= {each for each in self._trusted if each[0] == uid}

    async def release(self, namespace: str, actions: Sequence[ReleaseDisks], pool: Pool | None = None) -> Outcome:
        """Without a pool for VMs whose pool is gone."""
        return await self._all(pool, actions, partial(disks.release, self.api, namespace), quiet=True)

    # One kind of action each

    async def _save(self, state: State, action: SaveRevision) -> None:
        pool = state.pool
        owner = {"namespace": pool.namespace, "name": pool.name, "owner": template.owner(pool)}
        with suppress(AlreadyExists):  # by us, a moment ago: its name is its content
            await self.api.create(REVISIONS, revisions.document(state.revision, owner, revisions.content(pool.spec)))

    async def _create(self, state: State, actions: Sequence[Create]) -> Outcome:
        if not actions:
            return Outcome()
        pool = state.pool
        try:
            documents = await self.prepare([template.vm(pool, a.ordinal, state.revision) for a in actions])
        except (Refused, ApiError) as error:
            return self._refused(pool, actions[0], error)
        prepared = dict(zip(actions, documents, strict=True))

        async def create(action: Create) -> None:
            if action.anew:
                await self._without_disks(prepared[action])
            await self.prepare.create(prepared[action])

        return await self._all(pool, actions, create, most=state.burst)

    async def _delete(self, pool: Pool, a: Delete) -> None:
        if a.keep_disks:
            await disks.delete_keeping(self.api, pool.namespace, pool.uid, a)
        else:
            await self.api.delete(
                MACHINES,
                pool.namespace,
                a.name,
                uid=a.uid,
                resource_version=a.resource_version,
                propagation="Background",
            )

    async def _without_disks(self, vm: Json) -> None:
        namespace = vm["metadata"]["namespace"]
        for disk in template.disk_names(vm):
            for resource in (DATA_VOLUMES, CLAIMS):
                with suppress(NotFound):
                    metadata = (await self.api.get(resource, namespace, disk))["metadata"]
                    # One without an owner is nobody's leftover: it was brought, or kept, for this VM.
                    if metadata.get("ownerReferences") or "deletionTimestamp" in metadata:
                        raise Conflict(f"{resource.kind} {disk} of the VM before it is still there", status=409)

    async def _heal(self, pool: Pool, a: Heal) -> None:
        # Each of its failures is written into it, so the version that was planned from is an old one as a rule.
        live = machine(await self.api.get(MACHINES, pool.namespace, a.name))
        if live.uid != a.uid or live.deleting or live.ready or not live.failures:
            raise Conflict(f"{a.name} does not fail any more", status=409)
        # In the foreground: the name is free only when the disks are gone, so the new VM never gets the old ones.
        await self.api.delete(
            MACHINES,
            pool.namespace,
            a.name,
            uid=a.uid,
            resource_version=live.resource_version,
            propagation="Foreground",
        )

    async def _update(self, state: State, templates: dict[str, Pool | None], a: Update) -> None:
        pool = state.pool
        live = await self.api.get(MACHINES, pool.namespace, a.name)
        if live["metadata"]["uid"] != a.uid or "deletionTimestamp" in live["metadata"]:
            raise Conflict(f"{a.name} is another VM by now", status=409)
        if a.before not in templates:
            templates[a.before] = await self._before(state, a.before)
        before = templates[a.before]
        base = template.vm(before, a.ordinal, state.known[a.before]) if before is not None else None
        await self.api.replace(MACHINES, merge.updated(live, base, template.vm(pool, a.ordinal, state.revision)))

    async def _before(self, state: State, label: str) -> Pool | None:
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
            path = Resource("subresources.kubevirt.io", "v1", MACHINES.plural, MACHINES.kind).path(
                pool.namespace, a.name, "restart"
            )
            await self.api.request("PUT", path, body={})
        else:
            await self.api.delete(GUESTS, pool.namespace, a.name, uid=a.guest)

    async def _prune(self, pool: Pool, a: PruneRevision) -> None:
        with suppress(NotFound):
            await self.api.delete(REVISIONS, pool.namespace, a.name)

    # All alike

    async def _all(
        self,
        pool: Pool | None,
        actions: Sequence[A],
        call: Callable[[A], Awaitable[None]],
        *,
        most: int = 250,
        quiet: bool = False,
    ) -> Outcome:
        """Makes the calls in growing batches, says what was done unless that is of no interest, and remembers what is
        still to be seen in the store."""
        # Before the first call, all of them: an event that comes before its call's answer must find itself expected.
        self._expect(pool, actions)
        if not actions:
            return Outcome()
        trust = (pool.uid if pool else "", actions[0].verb)
        first = most if trust in self._trusted else 1
        self._trusted.discard(trust)
        results = await slow_start([partial(call, action) for action in actions], first=first, most=most)
        refusals, undone = [], []
        for action, result in zip_longest(actions, results, fillvalue=NotSent()):
            assert not isinstance(action, NotSent)
            if not isinstance(result, Exception):
                if pool is not None and not quiet:
                    self._say(pool, "Normal", f"Successful{action.verb}", _done(action), action.verb)
                continue
            if _surely_not_done(result):
                self._give_up(pool, action)
                undone.append(action)
            if not isinstance(result, PASSING):
                refusals.append((action, result))
        if refusals and pool is not None:
            return replace(self._refused(pool, *refusals[0]), undone=tuple(undone))
        again = any(isinstance(result, Exception) for result in results)
        if not again:
            self._trusted.add(trust)
        return Outcome(again=again, undone=tuple(undone))

    def _expect(self, pool: Pool | None, actions: Sequence[Action]) -> None:
        appear = [token for a in actions for token in _appears(a)]
        go = [token for a in actions for token in _goes(a)]
        if pool is not None and (appear or go):
            self.expectations.expect(pool.uid, creates=appear, deletes=go, now=self.clock())

    def _give_up(self, pool: Pool | None, action: Action) -> None:
        if pool is not None:
            self.expectations.gave_up(pool.uid, creates=_appears(action), deletes=_goes(action))

    def _refused(self, pool: Pool, action: Action, error: Exception) -> Outcome:
        reason = f"Failed{action.verb}"
        message = f"{action.verb} {action.name}: {error}"
        self._say(pool, "Warning", reason, message, action.verb)
        return Outcome(Failure(reason, message[:FAILURE_CHARACTERS]), True)

    def _say(self, pool: Pool | Misfit, kind: Any, reason: str, note: str, action: str) -> None:
        self.events.emit(_reference(pool), kind, reason, note, action=action)

    async def write_status(self, pool: Pool | Misfit, status: PoolStatus) -> None:
        # With null for what is not there: a merge would keep it. With the UID, so that it never lands on another pool.
        nothing = dict.fromkeys(status.model_dump(by_alias=True))
        change = {"metadata": {"uid": pool.uid}, "status": {**nothing, **status.json()}}
        with suppress(NotFound):  # it has been deleted since: there is nobody left to tell
            await self.api.patch(POOLS, pool.namespace, pool.name, change, subresource="status")

    def say_misread(self, pool: Pool, m: Machine) -> None:
        note = f"VM {m.name}: {meta.SCALE_IN} is {m.scale_in[:63]!r}, give Protect or First; until then it is protected"
        self._say(pool, "Warning", "InvalidScaleIn", note, "Read")

    def say_misfit(self, pool: Misfit) -> None:
        self._say(pool, "Warning", "InvalidSpec", pool.problem, "Read")


def _appears(action: Action) -> list[str]:
    """What the store will show when it is done."""
    match action:
        case Create():
            return [action.name]
        case Update():
            return [has_revision(action.name, action.revision)]
    return []


def _goes(action: Action) -> list[str]:
    """UIDs that the store will not show any more, or as being deleted."""
    match action:
        case Delete() | Heal():
            return [action.uid]
        case Restart():
            return [action.guest]
    return []


def has_revision(name: str, revision: str) -> str:
    return f"{name}@{revision}"


def _done(action: Action) -> str:
    kept = ", its disks are kept" if isinstance(action, Delete) and action.keep_disks else ""
    return f"{action.past} {action.name}{kept}: {action.reason}"


def _surely_not_done(error: Exception) -> bool:
    """An answer that never came leaves open whether it was done; its event, or the expectation's timeout, will tell."""
    return not isinstance(error, Unreachable | Unavailable | TimeoutError)


def _reference(pool: Pool | Misfit) -> dict[str, str]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachinePool",
        "namespace": pool.namespace,
        "name": pool.name,
        "uid": pool.uid,
    }
