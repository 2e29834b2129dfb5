"""Carries a plan out. The only code of replica sets that writes; it decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from controllers.replicaset import template
from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release
from controllers.replicaset.plan import Plan
from controllers.replicaset.snapshot import Failure, InvalidSpec, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.stores import REPLICA_SETS, VMIS
from controllers.shared.creation import DefaultingCreator
from defaulter.contract import InvalidDocument
from kinds.replicaset import ReplicaSetStatus
from runtime.api import Api
from runtime.batch_writer import BatchWriter, ExpectedEvents, NotSent
from runtime.errors import AlreadyExists, ApiError, Conflict, NotFound, Throttled, Unreachable
from runtime.events import EventRecorder, view_reference

Json = dict[str, Any]
A = TypeVar("A", bound=Action)

FAILURE_CHARACTERS = 1000


@dataclass(frozen=True)
class Outcome:
    failures: tuple[Failure, ...] = ()
    """to be said in the set's status"""
    again: bool = False
    """something was not done, whether or not that is anybody's fault"""
    done: int = 0


PASSING = (AlreadyExists, Conflict, NotFound, Throttled, Unreachable, NotSent)
"""Nobody's fault: somebody was first, it has changed since it was chosen, the server is busy or away. The next plan
knows more."""


@dataclass
class ReplicaSetWriter:
    api: Api
    events: EventRecorder
    writes: BatchWriter
    prepare: DefaultingCreator

    async def __call__(self, state: ReplicaSetSnapshot, plan: Plan) -> dict[type[Action], Outcome]:
        def planned(kind: type[A]) -> list[A]:
            return [action for action in plan.actions if isinstance(action, kind)]

        found = state.replica_set
        return {
            Release: await self._all(state, planned(Release), partial(self._release, found)),
            Adopt: await self._adopt(state, planned(Adopt)),
            # Before creating: what has ended may be all that a quota has no room for.
            Delete: await self._all(state, planned(Delete), partial(self._delete, found)),
            Create: await self._create(state, planned(Create)),
        }

    def forget(self, uid: str) -> None:
        """The set is gone."""
        self.writes.forget(uid)

    async def _adopt(self, state: ReplicaSetSnapshot, actions: Sequence[Adopt]) -> Outcome:
        # Asked once more, and not of the store: a set that is being deleted with its instances to stay must not take in
        # again what it has just let go.
        if not actions or not await self._still_wanted(state.replica_set):
            return Outcome()
        return await self._all(state, actions, partial(self._take, state.replica_set))

    async def _still_wanted(self, found: ReplicaSet) -> bool:
        try:
            metadata = (await self.api.get(REPLICA_SETS, found.namespace, found.name))["metadata"]
        except NotFound:
            return False
        return bool(metadata["uid"] == found.uid) and "deletionTimestamp" not in metadata

    async def _take(self, found: ReplicaSet, action: Adopt) -> None:
        others = await self._owners(found, action)
        await self._own(found, action, [*others, template.owner(found)])

    async def _release(self, found: ReplicaSet, action: Release) -> None:
        owners = await self._owners(found, action)
        await self._own(found, action, [each for each in owners if each.get("uid") != found.uid])

    async def _owners(self, found: ReplicaSet, action: Adopt | Release) -> list[Json]:
        metadata = (await self.api.get(VMIS, found.namespace, action.name))["metadata"]
        if (metadata["uid"], metadata["resourceVersion"]) != (action.uid, action.resource_version):
            raise Conflict(f"{action.name} has changed since it was looked at", status=409)
        return list(metadata.get("ownerReferences") or ())

    async def _own(self, found: ReplicaSet, action: Adopt | Release, owners: list[Json]) -> None:
        held = {"uid": action.uid, "resourceVersion": action.resource_version, "ownerReferences": owners}
        await self.api.patch(VMIS, found.namespace, action.name, {"metadata": held})

    async def _delete(self, found: ReplicaSet, action: Delete) -> None:
        await self.api.delete(
            VMIS,
            found.namespace,
            action.name,
            uid=action.uid,
            resource_version=action.resource_version,
            propagation="Background",
        )

    async def _create(self, state: ReplicaSetSnapshot, actions: Sequence[Create]) -> Outcome:
        if not actions:
            return Outcome()
        try:
            documents = await self.prepare([template.build_vmi(state.replica_set, action) for action in actions])
        except PASSING:
            return Outcome(again=True)
        except (InvalidDocument, ApiError) as error:
            return self._refused(state.replica_set, actions[0], error)
        prepared = {action.name: document for action, document in zip(actions, documents, strict=True)}

        async def create(action: Create) -> None:
            await self.prepare.create(prepared[action.name])

        return await self._all(state, actions, create)

    async def _all(
        self, state: ReplicaSetSnapshot, actions: Sequence[A], call: Callable[[A], Awaitable[None]]
    ) -> Outcome:
        """Makes the calls, says what was done, and remembers what is still to be seen in the store."""
        if not actions:
            return Outcome()
        found, refusals, done = state.replica_set, [], 0
        for action, error in await self.writes.make(found.uid, actions[0].verb, actions, call, most=state.burst):
            if error is None:
                done += 1
                self._say(found, "Normal", action.done, f"{action.past} {action.name}: {action.reason}", action.verb)
            elif not isinstance(error, PASSING):
                refusals.append((action, error))
        if refusals:
            return self._refused(found, *refusals[0], done=done)
        return Outcome(again=done < len(actions), done=done)

    def _refused(self, found: ReplicaSet, action: Action, error: Exception, done: int = 0) -> Outcome:
        message = (error.message if isinstance(error, ApiError) else str(error)) or type(error).__name__
        self._say(found, "Warning", action.refused, f"{action.name}: {message}", action.verb)
        return Outcome((Failure(action.failure, message[:FAILURE_CHARACTERS]),), True, done)

    # The set itself

    async def write_status(self, found: ReplicaSet | InvalidSpec, status: ReplicaSetStatus) -> None:
        # With null for what is not there: a merge would keep it. With the UID, so that it never lands on another set.
        nothing = dict.fromkeys(status.model_dump(by_alias=True))
        change = {"metadata": {"uid": found.uid}, "status": {**nothing, **status.json()}}
        with suppress(NotFound):  # it has been deleted since: there is nobody left to tell
            await self.api.patch(REPLICA_SETS, found.namespace, found.name, change, subresource="status")

    def say_misfit(self, found: InvalidSpec) -> None:
        self._say(found, "Warning", "InvalidSpec", found.problem, "Read")

    def say_paused(self, found: ReplicaSet) -> None:
        if found.spec.paused:
            self._say(found, "Normal", "SuccessfulPaused", "nothing is created or deleted while it is paused", "Pause")
        else:
            self._say(found, "Normal", "SuccessfulResumed", "it is kept in number again", "Resume")

    def _say(
        self, found: ReplicaSet | InvalidSpec, kind: Literal["Normal", "Warning"], reason: str, note: str, action: str
    ) -> None:
        self.events.emit(view_reference(REPLICA_SETS, found), kind, reason, note, action=action)


def trace(action: Action) -> ExpectedEvents:
    """An instance that was let go counts as gone: the store shows it as the set's no longer."""
    match action:
        case Create() | Adopt():
            return ExpectedEvents(creates=(action.name,))
        case Delete() | Release():
            return ExpectedEvents(deletes=(action.uid,))
