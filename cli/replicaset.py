"""What there is to say of an instance of a replica set, in the words of `poolhouse why`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cli.pools import controller_of

if TYPE_CHECKING:
    from controllers.replicaset.snapshot import ReplicaSetSnapshot
    from runtime.api import Api

Json = dict[str, Any]

KIND = "VirtualMachineInstanceReplicaSet"


async def get_vmi(api: Api, namespace: str, name: str) -> Json | None:
    """The VMI of this name, if there is one."""
    from runtime.errors import NotFound
    from runtime.resource import VMIS

    try:
        return await api.get(VMIS, namespace, name)
    except NotFound:
        return None


def is_standalone(document: Json) -> bool:
    """It is not the run of a VM."""
    return (controller_of(document) or {}).get("kind") != "VirtualMachine"


def replica_set_name(document: Json | None, name: str) -> str:
    """The set that has it, or by the looks of its name had it."""
    from controllers.shared.names import base_name

    owner = controller_of(document) if document is not None else None
    return str(owner["name"]) if owner is not None and owner["kind"] == KIND else base_name(name)


async def current_state(api: Api, namespace: str, name: str, replica_set: str) -> tuple[list[str], list[Json]]:
    """What is so now, and what would be done next."""
    from controllers.replicaset.observe import list_stores, observe
    from controllers.replicaset.simulate import simulate
    from controllers.replicaset.snapshot import ReplicaSetSnapshot

    state = observe(await list_stores(api, namespace), (namespace, replica_set), synced=True, failure=None, burst=250)
    if not isinstance(state, ReplicaSetSnapshot):
        return ["its set is gone" if state is None else f"its set cannot be read: {state.problem}"], []
    return list(_facts(state, name)), [row for row in simulate(state, datetime.now(UTC)) if row["vm"] == name]


def _facts(state: ReplicaSetSnapshot, name: str) -> Iterator[str]:
    from controllers.replicaset.plan import describe_end, plan

    i = next((each for each in state.owned if each.name == name), None)
    if i is None:
        return
    if i.deleting:
        yield "it is being deleted, and does not count any more"
    if i.final:
        yield f"it has ended ({describe_end(i)})"
    elif i.unknown:
        yield "its node does not answer, so it is replaced; it may come back"
    else:
        yield "it is ready" if i.ready else f"it is not ready ({i.phase or 'no phase yet'})"
    if i.migrating:
        yield "it is being migrated"
    if i.attempt:
        yield f"{i.attempt} before it ended soon after they were made"
    yield from (f"it {each.why}" for each in plan(state, datetime.now(UTC)).waits if each.vmi.name == name)
    if state.replica_set.spec.paused:
        yield "its set is paused"
