from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.errors import Conflict, Invalid, NotFound, Unreachable
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.store import Store
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.hypervisor import HypervisorRefused
from poolhouse.stack.engine.informers import utc_now
from poolhouse.stack.engine.migration.controller import MigrationController
from poolhouse.stack.engine.migration.evacuation import EvacuationController
from poolhouse.stack.engine.migration.plan import vmis_to_evacuate
from poolhouse.stack.engine.migration.workload_updates import WorkloadUpdateController
from poolhouse.stack.engine.node.scheduler import NodeCapacity
from poolhouse.stack.engine.objects import VMI, Migration, read_vmi
from tests.stack.engine.builders import NOW, node, vmi
from tests.stack.engine.migration.test_plan import DRAIN, MOVED, migration

V = TypeVar("V", bound=Any)
VM = ("default", "vm")

Json = dict[str, Any]

STRATEGY = "LiveMigrate"


class Seen(Generic[V]):
    """An informer whose store the test changes."""

    def __init__(self, indexes: Mapping[str, Callable[[V], Iterable[Hashable]]] | None = None) -> None:
        self.store: Store[V] = Store(indexes)
        self._changed: list[Callable[[V | None, V | None], None]] = []

    def subscribe(self, changed: Callable[[V | None, V | None], None]) -> None:
        self._changed.append(changed)

    def sees(self, key: Any, view: V | None) -> None:
        old = self.store.drop(key) if view is None else self.store.put(key, view)
        for changed in self._changed:
            changed(old, view)


def a_world() -> Any:
    """Two nodes, a VMI on the first one, and a new migration of the VMI."""
    informers = SimpleNamespace(
        cluster_settings=lambda: ClusterSettings(eviction_strategy=STRATEGY),
        migrations=Seen({"vmi": lambda each: [(each.namespace, each.vmi)]}),
        vmis=Seen({"node": lambda each: [each.node]}),
        nodes=Seen(),
        kubevirts=Seen(),
        faults_of=lambda vmi: (Faults(), ()),
        now=utc_now,
    )
    informers.migrations.sees(("default", "m"), migration())
    informers.vmis.sees(("default", "vm"), vmi())
    informers.nodes.sees(("", "node-1"), node("node-1"))
    informers.nodes.sees(("", "node-2"), node("node-2"))
    return informers


class Server:
    """Fails at one of its writes, before or after it takes effect. The informers show writes at once."""

    metrics = Metrics()

    def __init__(self, informers: Any, fails_at: int, written: bool) -> None:
        self._seen = {
            "virtualmachineinstances": informers.vmis,
            "virtualmachineinstancemigrations": informers.migrations,
        }
        self._fails_at = fails_at
        self._written = written
        self.writes = 0
        self.kubevirts: list[Json] = []

    async def get(self, resource: Any, namespace: str | None, name: str) -> Json:
        return {"metadata": {"namespace": namespace, "name": name}}

    async def list(self, resource: Any) -> tuple[list[Json], str]:
        return (self.kubevirts if resource.plural == "kubevirts" else []), ""

    async def delete(self, resource: Any, namespace: str, name: str, uid: str) -> None:
        informer = self._seen[resource.plural]
        assert informer.store.get((namespace, name)).uid == uid
        informer.sees((namespace, name), None)

    async def patch(self, resource: Any, namespace: str, name: str, body: Json, subresource: str = "") -> Json:
        self.writes += 1
        if self.writes != self._fails_at or self._written:
            informer = self._seen[resource.plural]
            view = informer.store.get((namespace, name))
            if view is None:
                raise NotFound("it is gone")
            # For a status patch a real server ignores all metadata but the resource version.
            metadata = body.get("metadata", {})
            if not subresource and metadata.get("uid", view.uid) != view.uid:
                raise Invalid("metadata.uid: field is immutable")
            if metadata.get("resourceVersion", view.resource_version) != view.resource_version:
                raise Conflict("the object has been modified")
            informer.sees((namespace, name), replace(view, status=merged(view.status, body["status"])))
        if self.writes == self._fails_at:
            raise Unreachable("nobody is there")
        return {}


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    new = old | {key: merged(old.get(key), value) for key, value in patch.items()}
    return {key: value for key, value in new.items() if value is not None}


class Mover:
    """A hypervisor that records the targets of migrations."""

    def __init__(self, error: Exception | None = None) -> None:
        self.moved: list[str] = []
        self._error = error

    async def migrate(self, vmi: Any, target: str, settings: Any, faults: Any, switched: Any) -> None:
        self.moved.append(target)
        if self._error is not None:
            raise self._error


async def worked_on(engine: MigrationController) -> int:
    """Reconciles until nothing is left to do; returns the number of failures."""
    failures = 0
    for _ in range(20):
        try:
            await engine.reconcile(("default", "m"))
        except Unreachable:
            failures += 1
    return failures


WRITES = [
    (number, name, written)
    for number, name in enumerate(["that it moves", "to the VMI", "how it ended, to the VMI", "that it is over"], 1)
    for written in (False, True)
]


@pytest.mark.parametrize("refused", [None, HypervisorRefused("no room")], ids=["it moves", "it does not"])
@pytest.mark.parametrize(
    ("fails_at", "written"),
    [pytest.param(at, done, id=f"{name}, {'answer' if done else 'request'} lost") for at, name, done in WRITES],
)
async def test_the_end_is_written_despite_failed_writes(
    fails_at: int, written: bool, refused: HypervisorRefused | None
) -> None:
    informers, mover = a_world(), Mover(refused)
    events = SimpleNamespace(emit=lambda *args, **named: None)
    server = Server(informers, fails_at, written)
    engine = MigrationController(server, informers, mover, events, NodeCapacity(informers.vmis.store))
    failures, writes = await worked_on(engine), server.writes
    assert (failures, await worked_on(engine), server.writes) == (1, 0, writes)
    told, vmi = informers.migrations.store.get(("default", "m")), informers.vmis.store.get(("default", "vm"))
    state = vmi.status["migrationState"]
    assert (mover.moved, told.phase) == (["node-2"], "Failed" if refused else "Succeeded")
    assert (state["completed"], state.get("failureReason")) == (True, "no room" if refused else None)
    assert vmi.node == ("node-1" if refused else "node-2")
    assert told.status["migrationState"] == state


async def test_the_vmi_is_updated_though_its_migration_is_deleted() -> None:
    informers, mover = a_world(), Mover()
    events = SimpleNamespace(emit=lambda *args, **named: None)
    engine = MigrationController(
        Server(informers, 3, False), informers, mover, events, NodeCapacity(informers.vmis.store)
    )
    with pytest.raises(Unreachable):
        await engine.reconcile(("default", "m"))
    informers.migrations.sees(("default", "m"), None)
    assert await worked_on(engine) == 0
    vmi = informers.vmis.store.get(("default", "vm"))
    assert (vmi.status["migrationState"]["completed"], vmi.node) == (True, "node-2")


@pytest.mark.parametrize("moves", [True, False], ids=["it moved", "it did not"])
@pytest.mark.parametrize("again", ["the migration", "the VMI"])
async def test_objects_with_the_same_name_are_not_written(again: str, moves: bool) -> None:
    informers = a_world()
    informer, key = (informers.migrations, ("default", "m")) if again == "the migration" else (informers.vmis, VM)

    class Meanwhile(Mover):
        async def migrate(self, *args: Any) -> None:
            informer.sees(key, replace(informer.store.get(key), uid="another-uid", status={"phase": ""}))
            if not moves:
                raise HypervisorRefused("no room")

    events = SimpleNamespace(emit=lambda *args, **named: None)
    engine = MigrationController(
        Server(informers, 0, False), informers, Meanwhile(), events, NodeCapacity(informers.vmis.store)
    )
    await engine.reconcile(("default", "m"))
    assert informer.store.get(key).status == {"phase": ""}
    # The other object is written.
    if again == "the migration":
        assert informers.vmis.store.get(VM).status["migrationState"]["completed"]
    else:
        assert informers.migrations.store.get(("default", "m")).phase == ("Succeeded" if moves else "Failed")


async def test_a_migration_of_an_earlier_engine_is_completed() -> None:
    informers = a_world()
    informers.migrations.sees(("default", "m"), migration("Running"))
    informers.vmis.sees(("default", "vm"), vmi(status=MOVED))
    engine = MigrationController(
        Server(informers, 0, False), informers, Mover(), None, NodeCapacity(informers.vmis.store)
    )
    assert await worked_on(engine) == 0
    state = informers.vmis.store.get(("default", "vm")).status["migrationState"]
    assert (informers.migrations.store.get(("default", "m")).phase, state["completed"]) == ("Succeeded", True)
    assert "failed" not in state


@pytest.mark.parametrize("moves", [True, False], ids=["too late", "in time"])
@pytest.mark.parametrize("taken", ["the migration", "the VMI"])
async def test_an_aborted_migration_reports_the_node_of_the_vmi(taken: str, moves: bool) -> None:
    informers, told = a_world(), []

    class Late(Mover):
        async def migrate(self, vmi: Any, target: str, settings: Any, faults: Any, switched: Any) -> None:
            if taken == "the migration":
                informers.migrations.sees(("default", "m"), migration("Running", deleted=NOW))
                informers.migrations.sees(("default", "m"), None)
            else:
                informers.vmis.sees(vmi.key, replace(informers.vmis.store.get(vmi.key), deleted=NOW))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)  # the abort takes a moment
                if not moves:
                    raise

    vmi = informers.vmis.store.get(("default", "vm"))
    events = SimpleNamespace(emit=lambda about, kind, reason, note, **named: told.append(note))
    engine = MigrationController(
        Server(informers, 0, False), informers, Late(), events, NodeCapacity(informers.vmis.store)
    )
    assert await worked_on(engine) == 0
    seen = informers.vmis.store.get(vmi.key)
    state = seen.status["migrationState"]
    assert (state["completed"], state["abortRequested"]) == (True, True)
    assert (state["abortStatus"], state.get("failed", False)) == (("Failed", False) if moves else ("Succeeded", True))
    assert seen.node == ("node-2" if moves else "node-1")
    assert ("too late" in told[-1], "The VMI stays" in told[-1]) == (moves, not moves)


async def test_a_migration_deleted_at_its_start_does_not_start() -> None:
    informers, mover = a_world(), Mover()
    server = Server(informers, 0, False)
    patch = server.patch

    async def gone(resource: Any, *args: Any, **named: Any) -> Json:
        done = await patch(resource, *args, **named)
        if resource.plural == "virtualmachineinstances" and informers.migrations.store:
            informers.migrations.sees(("default", "m"), None)
        return done

    server.patch = gone
    engine = MigrationController(
        server, informers, mover, SimpleNamespace(emit=lambda *args, **named: None), NodeCapacity(informers.vmis.store)
    )
    assert await worked_on(engine) == 0
    state = informers.vmis.store.get(("default", "vm")).status["migrationState"]
    assert (mover.moved, state["completed"], state["abortStatus"]) == ([], True, "Succeeded")


@pytest.mark.parametrize(
    ("migrations", "mode"),
    [({"allowPostCopy": True}, "PostCopy"), ({"allowWorkloadDisruption": True}, "Paused")],
)
async def test_a_failed_write_does_not_stop_a_migration_that_disrupts_the_guest(migrations: Json, mode: str) -> None:
    informers = a_world()

    class Hurried(Mover):
        async def migrate(self, vmi: Any, target: str, settings: Any, faults: Any, switched: Any) -> None:
            await switched()

        async def why_no_post_copy(self) -> str | None:
            return None

    server = Server(informers, 3, False)
    server.kubevirts = [{"metadata": {"name": "kubevirt"}, "spec": {"configuration": {"migrations": migrations}}}]
    engine = MigrationController(
        server,
        informers,
        Hurried(),
        SimpleNamespace(emit=lambda *args, **named: None),
        NodeCapacity(informers.vmis.store),
    )
    assert await worked_on(engine) == 0
    state = informers.vmis.store.get(("default", "vm")).status["migrationState"]
    assert (state["completed"], state["mode"], "failed" in state) == (True, mode, False)


async def test_parallel_migrations_do_not_use_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    informers, go = a_world(), asyncio.Event()
    informers.nodes.sees(("", "node-2"), node("node-2", memory=3 * vmi().memory_with_overhead // 2))
    other, asked = vmi(name="other", uid="other-uid"), migration(name="n", uid="n-uid", vmi="other")
    informers.vmis.sees(other.key, other)
    informers.migrations.sees(asked.key, asked)

    class Slow(Mover):
        async def migrate(self, vmi: Any, target: str, settings: Any, faults: Any, switched: Any) -> None:
            self.moved.append(vmi.name)
            await go.wait()

    mover, events = Slow(), SimpleNamespace(emit=lambda *args, **named: None)
    engine = MigrationController(
        Server(informers, 0, False), informers, mover, events, NodeCapacity(informers.vmis.store)
    )
    looked_at: list[Any] = []
    monkeypatch.setattr(engine.controller, "enqueue", looked_at.append)
    moving = asyncio.create_task(engine.reconcile(("default", "m")))
    await asyncio.sleep(0)
    await engine.reconcile(asked.key)
    assert informers.migrations.store.get(asked.key).phase == "Pending"
    go.set()
    await moving
    await engine.reconcile(asked.key)
    assert (mover.moved, informers.migrations.store.get(asked.key).phase) == (["vm"], "Pending")
    # The migration waited for memory, which is free now.
    looked_at.clear()
    informers.vmis.sees(("default", "vm"), None)
    assert looked_at == [asked.key]
    await engine.reconcile(asked.key)
    assert mover.moved == ["vm", "other"]


EVACUATION = migration(evacuates="node-1")
RAN = migration("Succeeded")
BEGUN = vmi(status={"migrationState": {"migrationUid": EVACUATION.uid}})


@pytest.mark.parametrize(
    ("asked", "vmi", "taints", "stays"),
    [
        pytest.param(EVACUATION, vmi(), DRAIN, True, id="the node is drained"),
        pytest.param(EVACUATION, vmi(), (), False, id="the node is no longer drained"),
        pytest.param(EVACUATION, vmi(status={"nodeName": "node-2"}), DRAIN, False, id="the VMI has left the node"),
        pytest.param(EVACUATION, BEGUN, (), True, id="the migration has started"),
        pytest.param(migration("Running", evacuates="node-1"), vmi(), (), True, id="the migration is running"),
        pytest.param(migration("Failed", evacuates="node-1"), vmi(), (), True, id="the migration has ended"),
        pytest.param(migration(), vmi(), (), True, id="the migration is not an evacuation"),
    ],
)
async def test_obsolete_evacuations_are_deleted(asked: Migration, vmi: VMI, taints: Any, stays: bool) -> None:
    informers = a_world()
    informers.migrations.sees(asked.key, asked)
    informers.vmis.sees(vmi.key, vmi)
    engine = EvacuationController(Server(informers, 0, False), informers)
    informers.nodes.sees(("", "node-1"), node("node-1", taints=taints))
    assert await engine.reconcile("node-1") is None
    assert (informers.migrations.store.get(asked.key) is not None) is stays


async def test_an_obsolete_evacuation_does_not_start() -> None:
    informers, mover = a_world(), Mover()
    informers.migrations.sees(EVACUATION.key, EVACUATION)
    engine = MigrationController(
        Server(informers, 0, False), informers, mover, None, NodeCapacity(informers.vmis.store)
    )
    assert await worked_on(engine) == 0
    assert (mover.moved, informers.migrations.store.get(EVACUATION.key)) == ([], None)


@pytest.mark.parametrize("order", list(permutations(["VMI", "migration", "node"])), ids=", ".join)
def test_a_vmi_is_evacuated_again_in_any_order_of_events(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is drained as the VMI arrives, perhaps before the migration is observed to have ended."""
    informers = a_world()
    informers.migrations.sees(("default", "m"), migration("Running"))
    engine = EvacuationController(SimpleNamespace(metrics=Metrics()), informers)
    looked_at: list[str] = []
    monkeypatch.setattr(engine.controller, "enqueue", looked_at.append)

    leaving: set[str] = set()
    for what in order:
        match what:
            case "migration":
                informers.migrations.sees(("default", "m"), migration("Succeeded"))
            case "VMI":
                informers.vmis.sees(("default", "vm"), vmi(status={"nodeName": "node-2"}))
            case _:
                informers.nodes.sees(("", "node-2"), node("node-2", taints=DRAIN))
        for name in looked_at:
            here = informers.vmis.store.by("node", name)
            found, _ = vmis_to_evacuate(
                informers.nodes.store.all(), here, informers.migrations.store.all(), NOW, STRATEGY
            )
            leaving.update(each.name for each in found)
        looked_at.clear()
    assert leaving == {"vm"}


def moved_document(node: str, sockets: int) -> Json:
    """A VMI of two sockets on the node, whose guest has this many."""
    created = "2026-01-01T11:59:00Z"
    return {
        "metadata": {"namespace": "default", "name": "vm", "uid": "vmi-uid", "creationTimestamp": created},
        "spec": {"domain": {"cpu": {"sockets": 2}}},
        "status": {"phase": "Running", "nodeName": node, "currentCPUTopology": {"sockets": sockets}},
    }


@pytest.mark.parametrize("again", [False, True], ids=["it has changed", "it has not"])
@pytest.mark.parametrize("caused_by", ["a drain", "a change of sockets"])
async def test_a_vmi_does_not_migrate_twice_because_its_informer_is_late(caused_by: str, again: bool) -> None:
    """The informer of migrations shows that the migration has ended; that of VMIs does not show its outcome yet."""
    informers = a_world()
    before, after = moved_document("node-1", 1), moved_document("node-2", 2)
    created: list[Json] = []

    async def get(resource: Any, namespace: str, name: str) -> Json:
        return before if again else after

    async def create(resource: Any, migration: Json) -> Json:
        created.append(migration)
        informers.migrations.sees(("default", "new"), replace(RAN, name="new", uid="new"))
        return {"metadata": {"namespace": "default", "name": "new"}}

    api: Any = SimpleNamespace(metrics=Metrics(), get=get, create=create)
    informers.migrations.sees(RAN.key, RAN)
    informers.vmis.sees(VM, read_vmi(before))
    if caused_by == "a drain":
        informers.nodes.sees(("", "node-1"), node("node-1", taints=DRAIN))
        await EvacuationController(api, informers).reconcile("node-1")
    else:
        informers.cluster_settings = lambda: ClusterSettings(update_methods=frozenset({"LiveMigrate"}))
        await WorkloadUpdateController(api, informers).reconcile(VM)
    assert len(created) == int(again)
