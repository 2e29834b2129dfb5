"""What is not as it should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.claim.doctor import findings
from controllers.claim.snapshot import Claim
from controllers.warmpool.warm_vm import NO_OWNER, WarmVM
from kinds.warm_states import WarmState
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, ago

READY = a_claim(status=bound_status("m", phase="Ready"))
WAITING = a_claim()
WELL = claimed_vm("m", WarmState.IN_USE)
OLD = ago(3600)


@pytest.mark.parametrize(
    ("machines", "claims", "expected"),
    [
        pytest.param([a_vm("a"), WELL], [READY], [], id="all is well"),
        pytest.param([replace(a_vm("a"), orphaned="PoolDeleted")], [], [("Orphan", False)], id="left by its pool"),
        pytest.param([replace(a_vm("a"), owner=NO_OWNER)], [], [("Orphan", True)], id="owned by nobody"),
        pytest.param([WELL], [], [("Stray", True)], id="its claim is gone"),
        pytest.param(
            [claimed_vm("m", state_since=OLD)], [WAITING], [("StuckLock", False)], id="taken and not written down"
        ),
        pytest.param([claimed_vm("m", state_since=ago(2))], [WAITING], [], id="taken a moment ago"),
        pytest.param([WELL, claimed_vm("b")], [READY], [("TwoMachines", True)], id="one too many"),
        pytest.param(
            [claimed_vm("a"), claimed_vm("b")], [WAITING], [("TwoMachines", False)], id="two, and none chosen"
        ),
        pytest.param([claimed_vm("m", WarmState.READY)], [WAITING], [("Drift", True)], id="ready and claimed"),
        pytest.param([], [READY], [("Drift", False)], id="ready without a machine"),
        pytest.param(
            [claimed_vm("m", state_since=OLD)], [READY], [("Drift", False)], id="ready, and its machine does not say so"
        ),
        pytest.param([claimed_vm("m", state_since=ago(2))], [READY], [], id="ready, and its machine's label follows"),
        pytest.param(
            [replace(WELL, owner=a_vm("a").owner)], [READY], [("Drift", False)], id="another owner than its label's"
        ),
        pytest.param(
            [replace(WELL, deleting=True, state_since=OLD)], [], [("StuckDeletion", False)], id="it does not go"
        ),
        pytest.param([claimed_vm("m", claim_uid="")], [WAITING], [("Drift", True)], id="given to nobody"),
    ],
)
def test_findings(machines: list[WarmVM], claims: list[Claim], expected: list[tuple[str, bool]]) -> None:
    found = list(findings(machines, claims, [a_pool()], NOW))
    assert [(each.ailment, each.delete is not None) for each in found] == expected


def test_what_somebody_uses_is_never_to_be_deleted() -> None:
    for other in (a_vm("a"), claimed_vm("b"), claimed_vm("c", WarmState.READY)):
        assert all(each.delete != WELL for each in findings([WELL, other], [READY], [a_pool()], NOW))
