"""Inconsistencies among warm VMs and claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.claim.doctor import findings
from controllers.claim.snapshot import Claim
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, ago

READY = a_claim(status=bound_status("m", phase="Ready"))
WAITING = a_claim()
IN_USE = claimed_vm("m", WarmState.IN_USE)
OLD = ago(3600)


@pytest.mark.parametrize(
    ("vms", "claims", "expected"),
    [
        pytest.param([a_vm("a"), IN_USE], [READY], [], id="nothing to find"),
        pytest.param(
            [replace(a_vm("a"), orphaned="PoolDeleted")], [], [("Orphaned", False)], id="orphaned by its pool"
        ),
        pytest.param([replace(a_vm("a"), owner=NO_OWNER)], [], [("Orphaned", True)], id="without owner"),
        pytest.param([IN_USE], [], [("ClaimGone", True)], id="the claim is gone"),
        pytest.param(
            [claimed_vm("m", state_since=OLD)],
            [WAITING],
            [("StuckReservation", False)],
            id="reserved long ago, not in the claim's status",
        ),
        pytest.param([claimed_vm("m", state_since=ago(2))], [WAITING], [], id="reserved a moment ago"),
        pytest.param([IN_USE, claimed_vm("b")], [READY], [("MultipleVMs", True)], id="an extra VM"),
        pytest.param(
            [claimed_vm("a"), claimed_vm("b")],
            [WAITING],
            [("MultipleVMs", False)],
            id="two VMs, none in the claim's status",
        ),
        pytest.param(
            [claimed_vm("m", WarmState.READY)], [WAITING], [("Inconsistent", True)], id="Ready VM with a claim"
        ),
        pytest.param([], [READY], [("Inconsistent", False)], id="Ready claim without VM"),
        pytest.param(
            [claimed_vm("m", state_since=OLD)], [READY], [("Inconsistent", False)], id="Ready claim, VM not in use"
        ),
        pytest.param([claimed_vm("m", state_since=ago(2))], [READY], [], id="Ready claim, the label follows"),
        pytest.param(
            [replace(IN_USE, owner=a_vm("a").owner)],
            [READY],
            [("Inconsistent", False)],
            id="owner differs from the label",
        ),
        pytest.param(
            [replace(IN_USE, deleting=True, state_since=OLD)], [], [("StuckDeletion", False)], id="stuck in deletion"
        ),
        pytest.param([claimed_vm("m", claim_uid="")], [WAITING], [("Inconsistent", True)], id="reserved without claim"),
    ],
)
def test_findings(vms: list[WarmVM], claims: list[Claim], expected: list[tuple[str, bool]]) -> None:
    found = list(findings(vms, claims, [a_pool()], NOW))
    assert [(each.problem, each.delete is not None) for each in found] == expected


def test_a_vm_in_use_is_never_to_be_deleted() -> None:
    for other in (a_vm("a"), claimed_vm("b"), claimed_vm("c", WarmState.READY)):
        assert all(each.delete != IN_USE for each in findings([IN_USE, other], [READY], [a_pool()], NOW))
