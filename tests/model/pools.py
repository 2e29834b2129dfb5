"""The model of a pool: its controller, KubeVirt, users and faults as moves between states."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from typing import Any

from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.plan import plan
from controllers.pool.pools import Pool, parse_pool
from controllers.pool.reasons import PoolReason
from controllers.pool.revision_content import content
from controllers.pool.revisions import Revision, current_revision
from controllers.pool.rollback import with_abort
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.writes.table import NEEDS, WRITES
from controllers.sets.write_batches import Failure
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import PoolStatus
from tests.model.canonical import Canonical
from tests.model.kubevirt import CRASHING, change_vm, half_written, progress, start, with_names, with_snapshot, written
from tests.model.search import Move

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REFUSED = Failure(str(PoolReason.of("FailedCreate")), "the API server refused it")
UNREAD = frozenset({"namespace", "owner_uid", "owner_kind", "owner_name", "created_at", "resource_version"})
"""fields that are the same in all states"""


UNREAD_STATUS: Mapping[str, Any] = {
    **dict.fromkeys(("ready_replicas", "terminating_replicas", "kept_disks", "snapshots"), 0),
    **{"history": (), "kept": (), "label_selector": ""},
}
ORDER = list(WRITES)


def template(memory: str, disk: str) -> Json:
    volume = {"name": "root", "dataVolume": {"name": "root"}}
    inner = {"domain": {"memory": {"guest": memory}, "devices": {}}, "volumes": [volume]}
    entry = {"metadata": {"name": "root"}, "spec": {"storage": {"resources": {"requests": {"storage": disk}}}}}
    return {"spec": {"running": True, "dataVolumeTemplates": [entry], "template": {"spec": inner}}}


@dataclass(frozen=True)
class Bounds:
    """What a model explores."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    """of the pool, apart from replicas and template"""
    vms: int = 3
    faults: int = 1
    changes: int = 1
    """by users"""
    replicas: Sequence[int] = (0, 1, 2, 3)
    kinds: Sequence[str] = ("missing", "old", "new", "behind", "starting", "deleting")
    """of the VMs with which states begin: see KINDS"""
    users: Sequence[str] = ("scale", "template", "delete")
    other_disk: bool = False
    """whether the templates differ in a disk too"""
    leaves: bool = False
    """whether the strategies leave VMs as they are, and say so"""


@dataclass(frozen=True)
class World:
    cluster: PoolSnapshot
    now: datetime
    faults: int
    changes: int

    def __str__(self) -> str:
        vms = ", ".join(describe(vm) for vm in self.cluster.vms)
        return f"{self.cluster.pool.spec.replicas} replicas of {self.cluster.revision.label}; {vms or 'no VM'}"


def describe(vm: VM) -> str:
    vmi = f"VMI of {vm.vmi.revision}{'' if vm.vmi.ready else ', not ready'}" if vm.vmi else "no VMI"
    return f"{vm.name} of {vm.revision} ({'deleted; ' if vm.deleting else ''}{vmi})"


Planner = Callable[[PoolSnapshot, datetime], Plan]
Write = Callable[[Action, PoolSnapshot, PoolSnapshot, datetime], PoolSnapshot | None]


@dataclass(frozen=True)
class Decided:
    snapshot: PoolSnapshot
    plan: Plan
    status: PoolStatus
    actions: tuple[Action, ...]
    """in the order of their writes"""


@dataclass
class PoolModel:
    bounds: Bounds = Bounds()
    plan: Planner = plan
    write: Write = written
    _canonical: Canonical = field(default_factory=lambda: Canonical(UNREAD))
    _last: tuple[World, Decided] | None = None

    # States

    def initial(self) -> Iterator[World]:
        old, new = self._pool(0, 1), self._pool(0, 2)
        for replicas, kinds in product(self.bounds.replicas, product(self.bounds.kinds, repeat=self.bounds.vms)):
            cluster = self._empty(replicas)
            for ordinal, kind in enumerate(kinds, start=1):
                cluster = KINDS[kind](cluster, ordinal, self._revision(old), self._revision(new))
            yield World(with_names(cluster), NOW, self.bounds.faults, self.bounds.changes)

    def _empty(self, replicas: int) -> PoolSnapshot:
        """A pool whose VMs had the first template, and whose user has just written the second one."""
        pool, first, second = (
            self._pool(replicas, 2),
            self._revision(self._pool(0, 1)),
            self._revision(self._pool(0, 2)),
        )
        status = PoolStatus(current_revision=first.name, update_revision=first.name)
        return PoolSnapshot(replace(pool, status=status), revisions=(first, second), revision=second)

    def _pool(self, replicas: int, which: int, generation: int = 1) -> Pool:
        disk = f"{which}Gi" if self.bounds.other_disk else "1Gi"
        spec = {"replicas": replicas, "template": template(f"{which * 64}Mi", disk), **self.bounds.spec}
        metadata = {"namespace": "default", "name": "web", "uid": "u-web", "generation": generation}
        found = parse_pool({"metadata": metadata, "spec": spec})
        assert isinstance(found, Pool), found
        return found

    def _revision(self, pool: Pool) -> Revision:
        return _revision_of(str(pool.spec.template), pool)

    def key(self, world: World) -> Hashable:
        return self._cluster_key(world), world.faults, world.changes

    def _cluster_key(self, world: World) -> Hashable:
        cluster, form, now = world.cluster, self._canonical, world.now
        pool = cluster.pool
        vms = tuple(form(vm, now) for vm in cluster.vms)
        others = tuple(
            form(each, now)
            for each in (cluster.retained_disks, cluster.vm_snapshots, cluster.revisions, cluster.unready_disks)
        )
        spec = pool.generation, pool.spec.replicas, cluster.revision.label, pool.spec.paused
        memory = cluster.failure, tuple(sorted(cluster.refused))
        hours = (now - NOW) % timedelta(days=1) if pool.spec.maintenance_windows else None
        return vms, others, spec, form(pool.status, now), memory, hours

    # Moves

    def moves(self, world: World) -> Iterator[Move[World]]:
        decided = self._decide(world)
        after = self._reconciled(world, decided)
        acts = bool(decided.actions) or after.pool.status != world.cluster.pool.status
        if acts:
            yield Move(_label(decided), replace(world, cluster=after))
        steps = list(progress(world.cluster, world.now))
        for label, cluster in steps:
            yield Move(label, replace(world, cluster=cluster))
        later = self._later(world, decided.plan.again_seconds)
        if later and not acts:
            label = f"{decided.plan.again_seconds:.0f} s pass"
            if not steps:
                yield Move(label, later, passive=True)
            elif world.faults:
                yield Move(f"slow: {label}", replace(later, faults=world.faults - 1), fair=False)
        for label, cluster in self._by_hooks(world.cluster):
            yield Move(label, replace(world, cluster=cluster), fair=False)
        users = list(self._by_users(world)) if world.changes else []
        for label, cluster in users:
            yield Move(label, replace(world, cluster=cluster, changes=world.changes - 1), fair=False)
        if world.faults:
            for label, cluster in self._by_faults(world, decided, steps):
                yield Move(label, replace(world, cluster=cluster, faults=world.faults - 1), fair=False)

    def _later(self, world: World, seconds: float | None) -> World | None:
        return replace(world, now=world.now + timedelta(seconds=seconds)) if seconds is not None else None

    def _decide(self, world: World) -> Decided:
        if self._last is not None and self._last[0] is world:
            return self._last[1]
        cluster = world.cluster
        releases = tuple(vm for vm in cluster.vms if vm.deleting and vm.retains_disks)
        saved = cluster.revision in cluster.revisions
        seen = with_abort(replace(cluster, awaiting_release=releases, revision_saved=saved), world.now)
        found = self.plan(seen, world.now)
        ordered = sorted(found.actions, key=lambda each: ORDER.index(type(each)))
        decided = Decided(seen, found, _lean(pool_status(seen, found, world.now)), tuple(ordered))
        self._last = world, decided
        return decided

    def _reconciled(self, world: World, decided: Decided, refused: Action | None = None) -> PoolSnapshot:
        """The cluster after the writes of a plan and of the status, of which the API server may refuse one."""
        cluster, not_done = self._send(world.cluster, world.now, decided, decided.actions, refused)
        failure, names = (REFUSED, _objects_of(refused)) if refused else (None, frozenset[str]())
        status = decided.status
        if not_done:
            done = replace(decided.plan, actions=tuple(e for e in decided.plan.actions if e not in not_done))
            status = _lean(pool_status(replace(decided.snapshot, failure=failure), done, world.now))
        elif decided.snapshot.failure:
            status = _lean(pool_status(replace(decided.snapshot, failure=None), decided.plan, world.now))
        return replace(_with_status(cluster, status), failure=failure, refused=names)

    def _send(
        self,
        cluster: PoolSnapshot,
        now: datetime,
        decided: Decided,
        sent: Sequence[Action],
        refused: Action | None = None,
    ) -> tuple[PoolSnapshot, list[Action]]:
        """The cluster after these writes, and those that were not done."""
        not_done, unsaved, blocked = list[Action](), False, False
        for action in sent:
            needless = (unsaved and isinstance(action, tuple(NEEDS))) or (
                blocked and isinstance(action, actions.Create)
            )
            # An abort gives VMs another revision than the pool's own.
            base = replace(cluster, revision=decided.snapshot.revision)
            after = None if needless or action is refused else self.write(action, base, decided.snapshot, now)
            if after is None:
                not_done.append(action)
                unsaved = unsaved or isinstance(action, actions.SaveRevision)
                blocked = blocked or isinstance(action, actions.Create)
            else:
                cluster = replace(after, revision=cluster.revision)
        return cluster, not_done

    # Faults

    def _by_faults(
        self, world: World, decided: Decided, steps: Sequence[tuple[str, PoolSnapshot]]
    ) -> Iterator[tuple[str, PoolSnapshot]]:
        sent, now = decided.actions, world.now
        for number in range(len(sent) + bool(sent)):
            cluster = self._recorded(world.cluster, decided)
            cluster, _ = self._send(cluster, now, decided, sent[:number])
            begun = half_written(sent[number], cluster) if number < len(sent) else cluster
            for each in (cluster, begun) if begun is not cluster else (cluster,):
                yield f"crash after {number} of {len(sent)} writes", _without_memory(each)
        for action in sent:
            yield f"refused: {action.verb} {action.name}", self._reconciled(world, decided, action)
        if sent:
            once = self._reconciled(world, decided)
            for label, cluster in [*steps, *self._by_users(world), ("the plan was carried out", once)]:
                stale = self._reconciled(replace(world, cluster=cluster), decided)
                yield f"{label}, and the plan is from before", stale
        if world.cluster.failure or world.cluster.refused:
            yield "another leader", _without_memory(world.cluster)
        yield from _broken(world.cluster)

    def _recorded(self, cluster: PoolSnapshot, decided: Decided) -> PoolSnapshot:
        """The status is written before VMs are replaced."""
        return _with_status(cluster, decided.status) if decided.plan.healed else cluster

    # Users

    def _by_hooks(self, cluster: PoolSnapshot) -> Iterator[tuple[str, PoolSnapshot]]:
        """The owner of a hook may end it before its timeout."""
        for vm in cluster.active:
            if vm.hold is not None and vm.held and vm.hold.hooks:
                left = replace(vm.hold, hooks=vm.hold.hooks[1:])
                yield f"hook {vm.hold.hooks[0][0]} of {vm.name} ends", change_vm(cluster, vm.uid, hold=left)

    def _by_users(self, world: World) -> Iterator[tuple[str, PoolSnapshot]]:
        cluster, users = world.cluster, self.bounds.users
        pool = cluster.pool
        if "scale" in users:
            for replicas in self.bounds.replicas:
                if abs(replicas - pool.spec.replicas) == 1:
                    yield f"scaled to {replicas}", self._changed(cluster, replicas=replicas)
        if "template" in users:
            which = 1 if pool.spec.template == self._pool(0, 2).spec.template else 2
            other = self._pool(0, which)
            found = self._changed(cluster, template=other.spec.template)
            revision = next((e for e in found.revisions if e.label == self._revision(other).label), None)
            number = max((each.number for each in found.revisions), default=0) + 1
            revision = revision or replace(self._revision(other), number=number)
            yield f"template {which}", replace(found, revision=revision)
        for vm in cluster.active if "delete" in users else ():
            yield f"{vm.name} is deleted", change_vm(cluster, vm.uid, deleted_at=format_time(world.now))
        for vm in cluster.active if "halt" in users else ():
            if vm.should_run:
                yield f"{vm.name} is halted", change_vm(cluster, vm.uid, should_run=False, run_strategy="Halted")

    def _changed(self, cluster: PoolSnapshot, **spec: Any) -> PoolSnapshot:
        pool = cluster.pool
        changed = pool.spec.model_copy(update=spec)
        return replace(cluster, pool=replace(pool, spec=changed, generation=pool.generation + 1))

    # Rest

    def unrest(self, world: World) -> str:
        decided = self._decide(world)
        wrong, told = what_is_wrong(decided.snapshot), _told(decided)
        if not wrong:
            return f"the plan is not empty: {decided.actions}" if decided.actions else ""
        heals = world.cluster.pool.spec.autohealing is not None
        obstacle = self.bounds.leaves or (not heals and any(vm.start_failures for vm in world.cluster.active))
        return "" if obstacle and told else f"{wrong}; told: {told or 'nothing'}"


def what_is_wrong(cluster: PoolSnapshot) -> str:
    """What differs from the spec, or ""."""
    active, wanted = cluster.active, cluster.pool.spec.replicas
    if len(active) != wanted or cluster.deleting:
        return f"{len(active)} VMs exist, {len(cluster.deleting)} are being deleted, {wanted} are wanted"
    for vm in active:
        if not vm.available:
            return f"{vm.name} is not available"
        if vm.revision != cluster.revision.label or (vm.vmi and vm.vmi.revision != vm.revision):
            return f"{vm.name} is not up to date"
        if vm.hold or vm.retains_disks or vm.replaced_disks:
            return f"{vm.name} is in the middle of something"
        if cluster.pool.spec.lifecycle_hooks and vm.vmi and meta.IN_SERVICE not in vm.vmi.labels:
            return f"{vm.name} is out of service"
    return "" if cluster.revision in cluster.revisions or not active else "the revision is not saved"


def _told(decided: Decided) -> str:
    """What the plan and the conditions say about why nothing happens."""
    ready = {each.type: each for each in decided.status.conditions}["Progressing"]
    if decided.plan.blocked or decided.plan.waits:
        return decided.plan.blocked or f"{decided.plan.waits[0].name}: {decided.plan.waits[0].reason}"
    available = all(vm.available for vm in decided.snapshot.active)
    return "" if available or ready.reason == PoolReason.COMPLETE else ready.reason


# Parts


@cache
def _numbered(template: str) -> int:
    return 1 if "64Mi" in template else 2


_REVISIONS: dict[str, Revision] = {}


def _revision_of(text: str, pool: Pool) -> Revision:
    if text not in _REVISIONS:
        found, _ = current_revision(pool.name, pool.uid, content(pool.spec), ())
        _REVISIONS[text] = replace(found, number=_numbered(text), uid=f"revision-{found.label}")
    return _REVISIONS[text]


def _lean(status: PoolStatus) -> PoolStatus:
    """The status without what no plan reads."""
    progressing = (each for each in status.conditions if each.type == "Progressing")
    lean = tuple(each.model_copy(update={"message": "", "last_transition_time": None}) for each in progressing)
    return status.model_copy(update={"conditions": lean, **UNREAD_STATUS})


def _with_status(cluster: PoolSnapshot, status: PoolStatus) -> PoolSnapshot:
    return replace(cluster, pool=replace(cluster.pool, status=status))


def _without_memory(cluster: PoolSnapshot) -> PoolSnapshot:
    return replace(cluster, failure=None, refused=frozenset())


def _objects_of(action: Action) -> frozenset[str]:
    """What `refused` has after a refused action."""
    expected = action.expected_events()
    return frozenset((*expected.creates, *expected.deletes))


def _label(decided: Decided) -> str:
    return "; ".join(f"{each.verb} {each.name}" for each in decided.actions) or "the status is written"


def _broken(cluster: PoolSnapshot) -> Iterator[tuple[str, PoolSnapshot]]:
    """A lost node, for a moment or for good, and a snapshot that fails."""
    for vm in cluster.active:
        if vm.vmi is not None and vm.vmi.ready and not vm.vmi.deleting:
            lost = replace(vm.vmi, ready=False)
            yield f"the node of {vm.name} is lost for a moment", change_vm(cluster, vm.uid, ready=False, vmi=lost)
            crashed = change_vm(cluster, vm.uid, ready=False, vmi=None, vmi_exists=False, start_failures=3)
            yield f"{vm.name} fails for good", change_vm(crashed, vm.uid, printable_status=CRASHING)
    for each in cluster.vm_snapshots:
        if not each.ready and not each.failed:
            yield f"the snapshot of {each.vm_name} fails", with_snapshot(cluster, each.name, failed=True)


Make = Callable[[PoolSnapshot, int, Revision, Revision], PoolSnapshot]


def _made(cluster: PoolSnapshot, ordinal: int, revision: Revision, *, ready: bool = True) -> PoolSnapshot:
    name = f"web-{ordinal}"
    made = actions.Create(name, ordinal, revision.name, "")
    cluster = written(made, cluster, cluster, NOW) or cluster
    cluster = start(cluster, cluster.vms[-1])
    vm = cluster.vms[-1]
    assert vm.vmi is not None
    return (
        change_vm(cluster, vm.uid, ready=True, vmi=replace(vm.vmi, ready=True, phase="Running")) if ready else cluster
    )


def _behind(cluster: PoolSnapshot, ordinal: int, old: Revision, new: Revision) -> PoolSnapshot:
    made = _made(cluster, ordinal, old)
    return change_vm(made, made.vms[-1].uid, revision=new.label, disk_templates="")


def _deleting(cluster: PoolSnapshot, ordinal: int, old: Revision, new: Revision) -> PoolSnapshot:
    made = _made(cluster, ordinal, old)
    return change_vm(made, made.vms[-1].uid, deleted_at=format_time(NOW))


def _failing(cluster: PoolSnapshot, ordinal: int, old: Revision, new: Revision) -> PoolSnapshot:
    made = _made(cluster, ordinal, new)
    facts: dict[str, Any] = {"ready": False, "vmi": None, "vmi_exists": False, "printable_status": CRASHING}
    return change_vm(made, made.vms[-1].uid, start_failures=3, **facts)


KINDS: dict[str, Make] = {
    "missing": lambda cluster, *_: cluster,
    "old": lambda cluster, ordinal, old, new: _made(cluster, ordinal, old),
    "new": lambda cluster, ordinal, old, new: _made(cluster, ordinal, new),
    "behind": _behind,
    "starting": lambda cluster, ordinal, old, new: _made(cluster, ordinal, new, ready=False),
    "deleting": _deleting,
    "failing": _failing,
}
