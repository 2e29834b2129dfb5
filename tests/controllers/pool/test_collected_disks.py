"""New disks whose DataVolume CDI has collected, which leaves a claim with the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from controllers.pool.actions import Restart
from controllers.pool.collected_disks import find_collected, is_complete
from controllers.pool.data_volumes import DiskState
from controllers.pool.plan import plan
from controllers.pool.revision_content import content
from controllers.pool.revisions import current_revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import Key, Resource
from tests.controllers.pool.builders import NOW, a_pool, vm, vmi
from tests.controllers.pool.stores import observe_pool, put

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
    assert is_complete(found) is complete


async def test_claims_that_cannot_be_read_stay_unknown() -> None:
    class Claims:
        answers: Mapping[str, Json | ApiError] = {
            "a": claim(VM),
            "b": claim(VOLUME),
            "c": NotFound("no", status=404),
            "d": ApiError("away", status=503),
            "e": claim(),
        }

        async def get(self, resource: Resource, namespace: str, name: str) -> Json:
            if isinstance(found := self.answers[name], ApiError):
                raise found
            return found

    assert await find_collected(Claims(), (("default", name) for name in "abcde")) == {
        ("default", "a"),
        ("default", "e"),
    }


def observed(state: DiskState, *collected: Key) -> tuple[Stores, PoolSnapshot]:
    """A pool whose VM got a new disk and still runs from the old one."""
    stores = Stores(disk_state=lambda key: state, collected={*collected})
    pool = a_pool(1, updateStrategy={"proactive": {"replacePolicy": "Recreate"}})
    revision, _ = current_revision(pool.name, pool.uid, content(pool.spec), (), namespace=pool.namespace)
    hashes = {"disk_templates": f"root={dict(revision.disks)['root']}", "replaced_disks": "root-1=h1"}
    run = vmi("web-1", revision="r0", disks=("root-1",))
    one = vm(1, revision=revision.label, disks=(NEW[1],), vmi=run, **hashes)
    return stores, observe_pool(put(stores, pool, revision, one), pool)


@pytest.mark.parametrize(
    ("state", "collected", "asked", "restarts"),
    [
        pytest.param(DiskState(), (), [NEW], False, id="no DataVolume and no claim yet"),
        pytest.param(DiskState(), (NEW,), [], True, id="CDI has collected the DataVolume"),
        pytest.param(DiskState("ImportInProgress"), (), [], False, id="the import runs"),
        pytest.param(DiskState("ImportInProgress"), (NEW,), [], False, id="a new DataVolume counts, not the old claim"),
        pytest.param(DiskState("Succeeded"), (), [], True, id="the import is done"),
    ],
)
def test_an_update_does_not_wait_for_a_collected_data_volume(
    state: DiskState, collected: tuple[Key, ...], asked: list[Key], *, restarts: bool
) -> None:
    stores, found = observed(state, *collected)
    assert stores.without_data_volume(("default", "web")) == asked
    assert stores.without_data_volume() == asked
    assert stores.without_data_volume(("default", "other")) == []
    assert any(isinstance(each, Restart) for each in plan(found, NOW).actions) is restarts
