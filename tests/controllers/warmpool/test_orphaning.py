"""The finalizer, and orphaned VMs."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.warmpool.orphaning import FINALIZER
from controllers.warmpool.snapshot import WarmPoolSnapshot
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    a_pool,
    a_snapshot,
    a_vm,
    ago,
    planned,
)

ORPHANING = {"deletionPolicy": "Orphan"}
DELETING = {**ORPHANING, "deletionTimestamp": ago(1), "finalizers": [FINALIZER]}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(a_pool(0, **ORPHANING)), [("finalizer", True)], id="deletionPolicy Orphan adds the finalizer"
        ),
        pytest.param(
            a_snapshot(a_pool(0, **ORPHANING, finalizers=["x", FINALIZER])), [], id="the finalizer is added once"
        ),
        pytest.param(
            a_snapshot(a_pool(0, finalizers=[FINALIZER])),
            [("finalizer", False)],
            id="deletionPolicy Delete removes the finalizer",
        ),
        pytest.param(
            a_snapshot(a_pool(1, **DELETING), a_vm("a"), a_vm("b", WarmState.IN_USE)),
            [("orphan", "a", "PoolDeleted")],
            id="members are orphaned, claimed VMs are left alone",
        ),
        pytest.param(
            a_snapshot(a_pool(1, **DELETING), a_vm("b", WarmState.IN_USE)),
            [("finalizer", False)],
            id="the finalizer is removed after that",
        ),
        pytest.param(
            a_snapshot(a_pool(1, deletionTimestamp=ago(1)), a_vm("a")),
            [],
            id="deletionPolicy Delete leaves VMs to the garbage collector",
        ),
    ],
)
def test_orphaning(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected
