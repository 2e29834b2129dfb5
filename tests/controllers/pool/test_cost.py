"""What a pool of three VMs costs the event loop among many objects of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from controllers.pool.controller import PoolController
from controllers.pool.known_revisions import REVISION_SOURCE, KnownRevisions
from controllers.pool.pools import Pool
from controllers.pool.revisions import Revision
from controllers.shared.evictions import EvictionBudget
from controllers.shared.sources import Node
from controllers.shared.vm import VM
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store
from tests.controllers.pool.builders import REVISION, a_pool, ago, retained, template, vm
from tests.controllers.pool.controlled import controlled, seen
from tests.controllers.pool.test_live_updates import guest, queued, written
from tests.cost import instructions

FEW, MANY = 10, 1000
WAITS = {"replaced_disks": "root-2=h1", "disks": ("root-0123456789-2",)}
SOURCE = {"sourceRef": {"kind": "DataSource", "name": "debian", "namespace": "images"}}
TRACKING = {"metadata": {"name": "disk"}, "spec": SOURCE}


def younger_pools(count: int) -> Iterator[Pool]:
    """Other pools of the namespace whose templates have the same disks."""
    for number in range(count):
        name = f"other-{number}"
        yield replace(a_pool(1), name=name, uid=f"u-{name}", created_at="2027-01-01T00:00:00Z")


def with_younger_pools(controller: PoolController, count: int) -> None:
    for pool in younger_pools(count):
        controller.stores.pools.put(pool.key, pool)
        controller.records.memory(pool)


def with_waiting_vms(controller: PoolController, count: int) -> None:
    for number in range(count):
        of = {"namespace": "others", "owner_name": "big", "owner_uid": "u-big"}
        each = replace(vm(f"big-{number}"), **of, **WAITS)
        controller.stores.vms.put(each.key, each)


def with_revisions_without_owner(controller: PoolController, count: int) -> None:
    for number in range(count):
        each = replace(REVISION, name=f"big-{number}", pool_uid="", namespace="others")
        controller.stores.revisions.stored.put(("others", each.name), each)


def with_live_updates_of_others(controller: PoolController, count: int) -> None:
    """A VM of `web` waits for KubeVirt, which has migrated many others for their live updates."""
    moved = written(1, seconds=count, guest=guest(2, moved_at=ago(1)))
    of = {"namespace": "others", "owner_name": "big", "owner_uid": "u-big"}
    for each in (queued(2), *(replace(moved, name=f"big-{number}", **of) for number in range(count))):
        assert each.vmi is not None
        vmi = replace(each.vmi, namespace=each.namespace, name=each.name)
        controller.stores.vmis.put(each.key, vmi)
        controller.stores.vms.put(each.key, replace(each, vmi=None))


def with_pools_of_others(controller: PoolController, count: int) -> None:
    for each in younger_pools(count):
        pool = replace(each, namespace="others")
        controller.stores.pools.put(pool.key, pool)
        controller.records.memory(pool)
        controller.disk_writers.note(pool.uid, pool.disks)
        controller.records.expectations.expect(pool.uid, creates=["x"], now=0.0)


def with_oldest(controller: PoolController) -> Pool:
    """A pool with the same disks as `web`. Of two pools of the same second, the one with the first name counts as the
    older one."""
    oldest = replace(a_pool(1), name="first", uid="u-first")
    controller.stores.pools.put(oldest.key, oldest)
    return oldest


def new_controller() -> PoolController:
    return controlled()


def with_retained_disks_of_others(controller: PoolController, count: int) -> None:
    for number in range(count):
        disk = replace(retained(number, by="u-other"), name=f"other-{number}")
        controller.stores.retained_disks.put((disk.namespace, disk.name), disk)


def with_disks_of_the_oldest(controller: PoolController, count: int) -> None:
    """An older pool has the disk names of `web`, and many VMs and retained disks."""
    oldest = with_oldest(controller)
    for number in range(10, 10 + count):
        each = replace(vm(f"first-{number}"), owner_uid=oldest.uid, owner_name=oldest.name, disks=(f"root-{number}",))
        disk = retained(20 + 2 * count + number, by=oldest.uid)
        controller.stores.vms.put(each.key, each)
        controller.stores.retained_disks.put((disk.namespace, disk.name), disk)


@pytest.mark.parametrize("crowd", [with_retained_disks_of_others, with_disks_of_the_oldest])
def test_an_empty_pool_costs_the_same_among_many_disks(crowd: Callable[[PoolController, int], None]) -> None:
    """A tenant may have thousands of pools, and disks with the names of all of them."""

    def cost(count: int) -> int:
        controller = new_controller()
        for number in (1, 2, 3):
            controller.stores.vms.drop(("default", f"web-{number}"))
        crowd(controller, count)
        controller.observe(("default", "web"))
        return instructions(lambda: controller.observe(("default", "web")))

    assert cost(MANY) < 1.05 * cost(FEW)


CROWDS = [with_younger_pools, with_waiting_vms, with_revisions_without_owner, with_live_updates_of_others]


@pytest.mark.parametrize("crowd", CROWDS, ids=lambda crowd: crowd.__name__)
def test_a_reconcile_costs_the_same_among_many(crowd: Callable[[PoolController, int], None]) -> None:
    def cost(count: int) -> int:
        controller = new_controller()
        crowd(controller, count)
        asyncio.run(controller.reconcile(("default", "web")))
        return instructions(lambda: asyncio.run(controller.reconcile(("default", "web"))))

    assert cost(MANY) < 1.05 * cost(FEW)


def test_the_writes_of_other_namespaces_are_not_compared() -> None:
    controller = new_controller()
    with_pools_of_others(controller, FEW)
    snapshot = seen(controller, a_pool(3))
    assert controller._writers(snapshot.pool, snapshot) == {snapshot.pool.uid}


def enqueued(controller: PoolController, change: Callable[[Callable[[Key, float], None]], None]) -> list[str]:
    keys = list[Key]()
    change(lambda key, seconds: keys.append(key))
    return sorted({name for _, name in keys})


def test_a_younger_pool_with_the_same_disk_reconciles_no_other() -> None:
    controller = new_controller()
    with_younger_pools(controller, FEW)
    (new,) = younger_pools(1)
    assert enqueued(controller, lambda enqueue: controller.changes.pool_changed(enqueue, None, new)) == ["other-0"]


def test_the_end_of_the_oldest_pool_reconciles_all_that_wait_for_its_disk() -> None:
    controller = new_controller()
    with_younger_pools(controller, 2)
    oldest = with_oldest(controller)
    controller.stores.pools.drop(oldest.key)
    found = enqueued(controller, lambda enqueue: controller.changes.pool_changed(enqueue, oldest, None))
    assert found == ["first", "other-0", "other-1", "web"]


def test_the_end_of_the_oldest_pool_costs_the_same_with_many_disks() -> None:
    """A tenant may have thousands of pools with the same 256 disks."""

    def keys(disks: int) -> int:
        controller, found = new_controller(), list[Key]()
        entries = [{"metadata": {"name": f"disk-{number}"}, "spec": {}} for number in range(disks)]
        oldest = replace(a_pool(1, template=template(dataVolumeTemplates=entries)), name="first", uid="u-first")
        for each in younger_pools(FEW):
            pool = replace(oldest, name=each.name, uid=each.uid, created_at=each.created_at)
            controller.stores.pools.put(pool.key, pool)
        controller.changes.pool_changed(lambda key, seconds: found.append(key), oldest, None)
        assert {name for _, name in found} >= {f"other-{number}" for number in range(FEW)}
        return len(found)

    assert keys(100) <= keys(1) + 1  # `web`, which has none of the disks


def test_a_vm_reconciles_its_pool_and_the_oldest_with_its_disk() -> None:
    controller = new_controller()
    with_younger_pools(controller, FEW)
    with_oldest(controller)
    new = replace(vm(4), disks=("root-4",))
    controller.stores.vms.put(new.key, new)
    assert enqueued(controller, lambda enqueue: controller.changes.vm_changed(enqueue, None, new)) == ["first", "web"]


def test_a_vm_reconciles_a_younger_pool_whose_vm_has_its_disk() -> None:
    """The condition DisksShared of that pool comes and goes with the VM."""
    controller = new_controller()
    with_oldest(controller)
    lone = replace(vm("lone"), owner_uid="", owner_kind="", owner_name="", disks=("root-2",))
    controller.stores.vms.put(lone.key, lone)
    for old, new in ((None, lone), (lone, None)):
        found = partial(controller.changes.vm_changed, old=old, new=new)
        assert enqueued(controller, found) == ["first", "web"]


def test_a_vm_costs_the_same_among_many_with_its_disk() -> None:
    def cost(count: int) -> int:
        controller = new_controller()
        for number in range(count):
            each = replace(vm(f"shared-{number}"), disks=("root-2",))
            controller.stores.vms.put(each.key, each)
        new = replace(vm(4), disks=("root-2",))
        return instructions(lambda: controller.changes.vm_changed(lambda key, seconds: None, None, new))

    assert cost(MANY) == cost(FEW)


@pytest.mark.parametrize(("disk", "expected"), [("root-0123456789-2", ["web"]), ("root-0123456789-3", [])])
def test_a_data_volume_reconciles_the_pool_of_the_vm_that_waits_for_it(disk: str, expected: list[str]) -> None:
    controller = new_controller()
    with_waiting_vms(controller, FEW)
    waits: VM = replace(vm(2), **WAITS)
    controller.stores.vms.put(waits.key, waits)
    found = enqueued(controller, lambda enqueue: controller.changes.data_volume_changed(enqueue, ("default", disk)))
    assert found == expected


def tracking_pool() -> Pool:
    pool = a_pool(3, updateStrategy={"proactive": {"trackDataSources": True}})
    pool.spec.template["spec"]["dataVolumeTemplates"] = [TRACKING]
    return replace(pool)


@pytest.mark.parametrize(("name", "expected"), [("debian", ["web"]), ("fedora", [])])
def test_a_data_source_reconciles_the_pools_that_track_it(name: str, expected: list[str]) -> None:
    controller = new_controller()
    controller.stores.pools.put(("default", "web"), tracking_pool())
    found = enqueued(controller, lambda enqueue: controller.changes.data_source_changed(enqueue, ("images", name)))
    assert found == expected


class CountedStore(Store[Revision]):
    reads = 0

    def by(self, index: str, value: Hashable) -> list[Revision]:
        self.reads += value == ("default", "u-web")
        return super().by(index, value)


def test_a_reconcile_reads_the_revisions_to_hash_the_template_and_to_observe() -> None:
    controller, stored = new_controller(), CountedStore(REVISION_SOURCE.indexes)
    controller.stores = replace(controller.stores, revisions=KnownRevisions(stored))
    controller.stores.pools.put(("default", "web"), tracking_pool())
    asyncio.run(controller.reconcile(("default", "web")))
    assert stored.reads == 2


def test_the_label_of_a_node_costs_the_pools_nothing_that_no_zone_has() -> None:
    """KubeVirt changes labels of nodes all the time, for example when a virt-handler stops sending its heartbeat."""
    node = Node("node-1", {"kubevirt.io/schedulable": "true"})

    def cost(count: int) -> int:
        controller = new_controller()
        with_pools_of_others(controller, count)
        return instructions(
            lambda: controller.changes.node_changed(lambda key, seconds: None, replace(node, labels={}), node)
        )

    assert cost(MANY) == cost(FEW)


def test_a_budget_costs_pools_of_other_namespaces_nothing() -> None:
    budget = EvictionBudget("default", "budget", "u-budget")

    def cost(count: int) -> int:
        controller = new_controller()
        with_pools_of_others(controller, count)
        assert enqueued(controller, lambda enqueue: controller.changes.budget_changed(enqueue, None, budget)) == ["web"]
        return instructions(lambda: controller.changes.budget_changed(lambda key, seconds: None, None, budget))

    assert cost(MANY) == cost(FEW)
