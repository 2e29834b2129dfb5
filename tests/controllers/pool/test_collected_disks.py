"""New disks whose DataVolume CDI has collected, which leaves a claim with the data."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.pool.actions import Restart
from controllers.pool.data_volumes import DiskState, disk_state, parse_claim
from controllers.pool.observe import observe
from controllers.pool.plan import plan
from controllers.pool.revision_content import content
from controllers.pool.revisions import current_revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from tests.controllers.pool.builders import NOW, a_pool, vm, vmi

Json = dict[str, Any]
NEW = ("default", "root-0123456789-1")
VOLUME, VM, USER = ({"kind": kind} for kind in ("DataVolume", "VirtualMachine", "User"))


def claim(*owners: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": "root-1", "ownerReferences": list(owners), **metadata}}


@pytest.mark.parametrize(
    ("found", "complete"),
    [
        pytest.param(claim(VM), True, id="CDI has made the VM the owner of the claim"),
        pytest.param(claim(), True, id="the DataVolume was deleted and its claim orphaned"),
        pytest.param({"metadata": {"name": "root-1"}}, True, id="no owners at all"),
        pytest.param(claim(USER), True, id="somebody else owns it"),
        pytest.param(claim(VOLUME), False, id="the informer does not show the DataVolume yet"),
        pytest.param(claim(VM, VOLUME), False, id="one of several owners"),
        pytest.param(claim(VM, deletionTimestamp="now"), False, id="the claim is going"),
    ],
)
def test_which_claims_are_complete(found: Json, *, complete: bool) -> None:
    assert parse_claim(found).starts_vm is complete


def observed(state: DiskState) -> PoolSnapshot:
    """A pool whose VM got a new disk and still runs from the old one."""
    stores = Stores(disk_state=lambda key: state)
    pool = a_pool(1, updateStrategy={"proactive": {"replacePolicy": "Recreate"}})
    revision, _ = current_revision(pool.name, pool.uid, content(pool.spec), (), namespace=pool.namespace)
    hashes = {"disk_templates": f"root={dict(revision.disks)['root']}", "replaced_disks": "root-1=h1"}
    run = vmi("web-1", revision="r0", disks=("root-1",))
    one = vm(1, revision=revision.label, disks=(NEW[1],), vmi=run, **hashes)
    stores.pools.put(pool.key, pool)
    stores.revisions.stored.put(("default", revision.name), revision)
    stores.vms.put(one.key, one)
    stores.vmis.put(one.key, run)
    found = observe(stores, pool.key, synced=True, failure=None, burst=250)
    assert isinstance(found, PoolSnapshot)
    return found


IMPORTING, COLLECTED = DiskState("ImportInProgress"), parse_claim(claim(VM))


@pytest.mark.parametrize(
    ("volume", "found", "restarts"),
    [
        pytest.param(None, None, False, id="no DataVolume and no claim yet"),
        pytest.param(None, COLLECTED, True, id="CDI has collected the DataVolume"),
        pytest.param(None, parse_claim(claim(VOLUME)), False, id="the informer does not show the DataVolume yet"),
        pytest.param(DiskState(), COLLECTED, True, id="CDI has not looked at the DataVolume of a claim that exists"),
        pytest.param(IMPORTING, None, False, id="the import runs"),
        pytest.param(IMPORTING, COLLECTED, False, id="a new DataVolume counts, not the old claim"),
        pytest.param(DiskState("Succeeded"), None, True, id="the import is done"),
    ],
)
def test_an_update_does_not_wait_for_a_collected_data_volume(
    volume: DiskState | None, found: DiskState | None, *, restarts: bool
) -> None:
    actions = plan(observed(disk_state(volume, found)), NOW).actions
    assert any(isinstance(each, Restart) for each in actions) is restarts
