"""Plans of a warm pool: snapshot → actions."""

from __future__ import annotations

from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    NEW,
    NOT_READY_NODE,
    OTHER_TEMPLATE,
    a_pool,
    a_snapshot,
    a_vm,
    planned,
)


def test_a_vm_gets_one_action() -> None:
    """A second action would fail, because the first changes the resourceVersion."""
    pool = a_pool(2, standby={"mode": "Paused"}, template=OTHER_TEMPLATE)
    vms = [a_vm("a"), a_vm("b", NEW), a_vm("c", node=NOT_READY_NODE), a_vm("d", WarmState.UNHEALTHY)]
    acted = [each[1] for each in planned(a_snapshot(pool, *vms)) if each[0] not in ("create", "finalizer")]
    assert len(acted) == len(set(acted))
