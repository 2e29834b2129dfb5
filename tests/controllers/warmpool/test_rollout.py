"""Replacement of outdated and expired VMs, and of VMs on nodes that are drained."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controllers.warmpool.rollout import why_stalled
from controllers.warmpool.snapshot import WarmPoolSnapshot
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import (
    CORDONED,
    CREATE,
    FOUR_OLD,
    NEW,
    NOT_READY_NODE,
    NOW,
    OTHER_TEMPLATE,
    OVERDUE,
    a_pool,
    a_snapshot,
    a_vm,
    a_vmi,
    ago,
    outdated,
    planned,
)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            a_snapshot(4, *FOUR_OLD), [("delete", "o0", "Outdated")], id="a quarter at a time, the oldest first"
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[1:], a_vm("n", NEW, vmi=None)), [], id="none while the replacement is Provisioning"
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[1:], a_vm("n")),
            [("delete", "o1", "Outdated")],
            id="the next after the replacement is Ready",
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[:3], outdated("p", NEW, vmi=None)),
            [("delete", "p", "Outdated")],
            id="a Provisioning VM is replaced at once",
        ),
        pytest.param(
            a_snapshot(4, *FOUR_OLD[:3], outdated("p", WarmState.UNKNOWN, node=NOT_READY_NODE)),
            [],
            id="an Unknown VM is not replaced",
        ),
        pytest.param(
            a_snapshot(1, outdated("o")), [("delete", "o", "Outdated")], id="a single replica may be unavailable"
        ),
        pytest.param(
            a_snapshot(
                a_pool(1, updateStrategy={"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}}), outdated("o")
            ),
            [CREATE],
            id="with a surge the new VM is created first",
        ),
        pytest.param(
            a_snapshot(
                a_pool(1, updateStrategy={"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}}),
                outdated("o"),
                a_vm("n"),
            ),
            [("delete", "o", "Outdated")],
            id="with a surge the old VM is deleted last",
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "Recreate"}), *FOUR_OLD),
            [("delete", f"o{n}", "Outdated") for n in range(4)],
            id="Recreate deletes all",
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "OnReplenish"}), *FOUR_OLD), [], id="OnReplenish deletes none"
        ),
        pytest.param(
            a_snapshot(a_pool(4, updateStrategy={"type": "OnReplenish"}), *FOUR_OLD[:3]),
            [CREATE],
            id="OnReplenish creates VMs of the new template",
        ),
        pytest.param(
            a_snapshot(a_pool(4, incompatiblePolicy="Orphan"), *FOUR_OLD),
            [("orphan", "o0", "TemplateChanged")],
            id="incompatiblePolicy Orphan releases old VMs",
        ),
        pytest.param(
            a_snapshot(a_pool(4, status=OVERDUE), *FOUR_OLD[1:], a_vm("n"), a_vm("m", NEW, vmi=None)),
            [("delete", "m", "Excess")],
            id="scale-in comes before replacement",
        ),
        pytest.param(
            a_snapshot(
                a_pool(
                    4,
                    status=OVERDUE,
                    updateStrategy={"rollingUpdate": {"maxUnavailable": 3}, "progressDeadlineSeconds": 600},
                ),
                *FOUR_OLD[:3],
                a_vm("m", NEW, vmi=None),
            ),
            [],
            id="a stalled rollout keeps the old VMs",
        ),
        pytest.param(
            a_snapshot(
                a_pool(4, expiry={"maxAgeSeconds": 500}), *(a_vm(f"e{n}", created_at=ago(600 - n)) for n in range(4))
            ),
            [("delete", "e0", "Expired")],
            id="expired VMs are replaced within the budget",
        ),
        pytest.param(
            a_snapshot(
                a_pool(2, expiry={"maxAgeSeconds": 500}),
                a_vm("a", created_at=ago(400)),
                a_vm("b", created_at=ago(1)),
            ),
            [],
            id="not before maxAgeSeconds",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), a_vm("b")),
            [CREATE],
            id="a VM on a cordoned node gets a replacement first",
        ),
        pytest.param(
            a_snapshot(2, a_vm("a", node=CORDONED), a_vm("b"), a_vm("c")),
            [("delete", "a", "NodeLeaving")],
            id="it is deleted when enough others are available",
        ),
        pytest.param(
            a_snapshot(
                2, a_vm("a", NEW, node=CORDONED, vmi=a_vmi(phase="Scheduled", conditions=frozenset())), a_vm("b")
            ),
            [("delete", "a", "NodeLeaving"), CREATE],
            id="a Provisioning VM on a cordoned node is deleted at once",
        ),
    ],
)
def test_rollout(observed: WarmPoolSnapshot, expected: list[Any]) -> None:
    assert planned(observed) == expected


def test_a_rollback_keeps_vms_of_the_earlier_template() -> None:
    there, back = a_pool(2, template=OTHER_TEMPLATE), a_pool(2)
    vms = [a_vm("a"), a_vm("b")]
    assert planned(a_snapshot(there, *vms))[0] == ("delete", "a", "Outdated")
    assert planned(a_snapshot(back, *vms)) == []


def test_a_stalled_rollout_names_the_first_vms_and_counts_the_others() -> None:
    new = [a_vm(f"n{number}", NEW, vmi=None) for number in range(7)]
    found = why_stalled(a_snapshot(a_pool(8, status=OVERDUE), outdated("o"), *new), NOW)
    assert re.search(r"web-n4 \(.*\) and 2 more; the pool keeps 1 VM of the old template$", found), found
