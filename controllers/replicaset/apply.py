"""The writes and the events of a replica set."""

from collections.abc import Sequence

from controllers.replicaset.actions import Action, Adopt, Create, Delete, Release, build_vmi, owner_reference
from controllers.replicaset.observe import REPLICA_SETS, ReplicaSet
from controllers.replicaset.reasons import ReplicaSetReason
from controllers.sets import writes
from controllers.sets.events import SetEvents
from controllers.sets.write_batches import Failure, Outcome, error_message, failure
from controllers.sets.writes import Send, Writing, each
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.runtime.api import find
from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import VMIS

To = Writing[ReplicaSet]


async def _release(to: To, action: Release) -> None:
    metadata = await _metadata(to, action)
    left = [each for each in metadata.get("ownerReferences") or () if each.get("uid") != to.owner.uid]
    await _set_owners(to, action, left, without_tracking_marks(metadata))


async def _adopt_all(to: To, actions: Sequence[Adopt]) -> Outcome:
    # The store may be stale, so the API is read: a set that is being deleted with orphaned VMIs must not adopt them
    # again.
    if not actions or not await _still_exists(to):
        return Outcome()
    return await _ADOPT_EACH(to, actions)


async def _still_exists(to: To) -> bool:
    found = await find(to.api, REPLICA_SETS, to.owner.namespace, to.owner.name)
    metadata = found["metadata"] if found is not None else {}
    return bool(metadata.get("uid") == to.owner.uid) and "deletionTimestamp" not in metadata


async def _adopt(to: To, action: Adopt) -> None:
    owners = (await _metadata(to, action)).get("ownerReferences") or ()
    await _set_owners(to, action, [*owners, owner_reference(to.owner)])


async def _metadata(to: To, action: Adopt | Release) -> Json:
    metadata: Json = (await to.api.get(VMIS, to.owner.namespace, action.name))["metadata"]
    if (metadata["uid"], metadata["resourceVersion"]) != (action.uid, action.resource_version):
        raise Conflict(f"{action.name} has changed since the plan", status=409)
    return metadata


async def _set_owners(to: To, action: Adopt | Release, owners: list[Json], marks: Json | None = None) -> None:
    change = {"uid": action.uid, "resourceVersion": action.resource_version, "ownerReferences": owners}
    await to.api.patch(VMIS, to.owner.namespace, action.name, {"metadata": change | (marks or {})})


async def _delete(to: To, action: Delete) -> None:
    uid, version = action.uid, action.resource_version
    await to.api.delete(
        VMIS, to.owner.namespace, action.name, uid=uid, resource_version=version, propagation="Background"
    )


async def _create(to: To, actions: Sequence[Create]) -> Outcome:
    return await writes.create(to, actions, [build_vmi(to.owner, action) for action in actions])


_ADOPT_EACH: Send[To] = each(_adopt, in_bursts=True)

WRITES: dict[type[Action], Send[To]] = {
    Release: each(_release, in_bursts=True),
    Adopt: _adopt_all,
    # Deletions come before creations, because ended VMIs may use up a quota.
    Delete: each(_delete, in_bursts=True),
    Create: _create,
}


class ReplicaSetEvents(SetEvents[ReplicaSet]):
    resource = REPLICA_SETS

    def failed(self, found: ReplicaSet, action: Action, error: Exception) -> Failure:
        message = error_message(error)
        self.emit(found, "Warning", action.failed, f"{action.name}: {message}", action.verb)
        return failure(ReplicaSetReason.of(f"Failure{action.verb}"), message)

    def paused_changed(self, found: ReplicaSet) -> None:
        if found.spec.paused:
            note = "the controller creates and deletes nothing while spec.paused is true"
            self.emit(found, "Normal", ReplicaSetReason.SUCCESSFUL_PAUSED, note, "Pause")
        else:
            note = "the controller creates and deletes VMIs again"
            self.emit(found, "Normal", ReplicaSetReason.SUCCESSFUL_RESUMED, note, "Resume")
