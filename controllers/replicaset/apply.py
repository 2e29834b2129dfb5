"""Executes the plan of a replica set, and reports the actions as events."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from apimachinery.owner_references import controller_reference
from apimachinery.unstructured import Json
from controllers.replicaset.observe import REPLICA_SETS, InvalidReplicaSet, ReplicaSet, ReplicaSetSnapshot
from controllers.replicaset.plan import Action, Adopt, Create, Delete, Plan, Release
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.shared.creation import DefaultingCreator
from controllers.shared.write_batches import PASSING, Failure, Outcome, WriteBatches, error_message, failure
from defaulter.contract import InvalidDocument
from kinds import meta
from kinds.tracking_marks import without_tracking_marks
from runtime.api import Api
from runtime.errors import ApiError, Conflict, NotFound
from runtime.events import EventRecorder, EventType, view_reference
from runtime.resource import VMIS

A = TypeVar("A", bound=Action)

Outcomes = dict[type[Action], Outcome]


@dataclass
class ReplicaSetWriter:
    api: Api
    batches: WriteBatches[ReplicaSet]
    creator: DefaultingCreator

    async def apply(self, snapshot: ReplicaSetSnapshot, plan: Plan) -> Outcomes:
        def planned(kind: type[A]) -> list[A]:
            return [action for action in plan.actions if isinstance(action, kind)]

        found, burst = snapshot.replica_set, snapshot.burst
        send = partial(self.batches.send, found, max_in_flight=burst)
        return {
            Release: await send(planned(Release), partial(self._release, found)),
            Adopt: await self._adopt(found, planned(Adopt), burst),
            # Deletions come before creations, because ended VMIs may use up a quota.
            Delete: await send(planned(Delete), partial(self._delete, found)),
            Create: await self._create(found, planned(Create), burst),
        }

    async def _adopt(self, found: ReplicaSet, actions: Sequence[Adopt], burst: int) -> Outcome:
        # The store may be stale, so the API is read: a set that is being deleted with orphaned VMIs must not adopt them
        # again.
        if not actions or not await self._still_exists(found):
            return Outcome()
        return await self.batches.send(found, actions, partial(self._take, found), max_in_flight=burst)

    async def _still_exists(self, found: ReplicaSet) -> bool:
        try:
            metadata = (await self.api.get(REPLICA_SETS, found.namespace, found.name))["metadata"]
        except NotFound:
            return False
        return bool(metadata["uid"] == found.uid) and "deletionTimestamp" not in metadata

    async def _take(self, found: ReplicaSet, action: Adopt) -> None:
        owners = (await self._metadata(found, action)).get("ownerReferences") or ()
        await self._set_owners(found, action, [*owners, _owner(found)])

    async def _release(self, found: ReplicaSet, action: Release) -> None:
        metadata = await self._metadata(found, action)
        left = [each for each in metadata.get("ownerReferences") or () if each.get("uid") != found.uid]
        await self._set_owners(found, action, left, without_tracking_marks(metadata))

    async def _metadata(self, found: ReplicaSet, action: Adopt | Release) -> Json:
        metadata: Json = (await self.api.get(VMIS, found.namespace, action.name))["metadata"]
        if (metadata["uid"], metadata["resourceVersion"]) != (action.uid, action.resource_version):
            raise Conflict(f"{action.name} has changed since the plan", status=409)
        return metadata

    async def _set_owners(
        self, found: ReplicaSet, action: Adopt | Release, owners: list[Json], marks: Json | None = None
    ) -> None:
        change = {"uid": action.uid, "resourceVersion": action.resource_version, "ownerReferences": owners}
        change |= marks or {}
        await self.api.patch(VMIS, found.namespace, action.name, {"metadata": change})

    async def _delete(self, found: ReplicaSet, action: Delete) -> None:
        uid, version = action.uid, action.resource_version
        await self.api.delete(
            VMIS, found.namespace, action.name, uid=uid, resource_version=version, propagation="Background"
        )

    async def _create(self, found: ReplicaSet, actions: Sequence[Create], burst: int) -> Outcome:
        if not actions:
            return Outcome()
        try:
            documents = await self.creator([build_vmi(found, action) for action in actions])
        except PASSING:
            return Outcome(retry=True)
        except (InvalidDocument, ApiError) as error:
            return self.batches.refuse(found, actions, error)
        by_name = {action.name: document for action, document in zip(actions, documents, strict=True)}

        async def create(action: Create) -> None:
            await self.creator.create(by_name[action.name])

        return await self.batches.send(found, actions, create, max_in_flight=burst)


@dataclass
class ReplicaSetEvents:
    recorder: EventRecorder

    def succeeded(self, found: ReplicaSet, action: Action) -> None:
        self._emit(found, "Normal", action.succeeded, f"{action.past} {action.name}: {action.reason}", action.verb)

    def failed(self, found: ReplicaSet, action: Action, error: Exception) -> Failure:
        message = error_message(error)
        self._emit(found, "Warning", action.failed, f"{action.name}: {message}", action.verb)
        return failure(action.failure, message)

    def invalid_spec(self, found: InvalidReplicaSet) -> None:
        self._emit(found, "Warning", ReplicaSetReason.INVALID_SPEC, found.problem, "Read")

    def paused_changed(self, found: ReplicaSet) -> None:
        if found.spec.paused:
            note = "the controller creates and deletes nothing while spec.paused is true"
            self._emit(found, "Normal", ReplicaSetReason.SUCCESSFUL_PAUSED, note, "Pause")
        else:
            note = "the controller creates and deletes VMIs again"
            self._emit(found, "Normal", ReplicaSetReason.SUCCESSFUL_RESUMED, note, "Resume")

    def _emit(
        self, found: ReplicaSet | InvalidReplicaSet, kind: EventType, reason: ReplicaSetReason, note: str, action: str
    ) -> None:
        self.recorder.emit(view_reference(REPLICA_SETS, found), kind, reason, note, action=action)


def build_vmi(found: ReplicaSet, action: Create) -> Json:
    template = copy.deepcopy(found.spec.template)
    given = template.get("metadata") or {}
    annotations = {key: value for key, value in (given.get("annotations") or {}).items() if key != meta.ATTEMPT}
    if action.attempt:
        annotations[meta.ATTEMPT] = str(action.attempt)
    return {
        "apiVersion": VMIS.api_version,
        "kind": VMIS.kind,
        "metadata": {
            "namespace": found.namespace,
            "name": action.name,
            "labels": given.get("labels") or {},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [_owner(found)],
        },
        "spec": template.get("spec") or {},
    }


def _owner(found: ReplicaSet) -> Json:
    return controller_reference(REPLICA_SETS.api_version, REPLICA_SETS.kind, found.name, found.uid)
