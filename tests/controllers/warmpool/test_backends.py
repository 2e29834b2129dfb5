"""Changes that the state of a VM allows."""

from __future__ import annotations

import pytest

from controllers.warmpool.backends import (
    Change,
    InvalidTransition,
    check_transition,
)
from controllers.warmpool.warm_vm import WarmVM
from kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import a_vm


@pytest.mark.parametrize(
    ("m", "wanted", "fine"),
    [
        pytest.param(a_vm("a"), Change(WarmState.ALLOCATING, claim_uid="c"), True, id="a claim gets a Ready VM"),
        pytest.param(a_vm("a", WarmState.IN_USE), Change(claim_uid="other"), False, id="no second claim"),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING),
            Change(WarmState.READY, claim_uid=""),
            True,
            id="returned before activation",
        ),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING, activated=True),
            Change(WarmState.READY, claim_uid=""),
            False,
            id="not returned after activation",
        ),
        pytest.param(a_vm("a", WarmState.ALLOCATING), Change(WarmState.READY), False, id="not returned with its claim"),
        pytest.param(
            a_vm("a", WarmState.IN_USE), Change(WarmState.READY, claim_uid=""), False, id="InUse never becomes Ready"
        ),
        pytest.param(a_vm("a", None), Change(WarmState.READY), False, id="no state"),
        pytest.param(a_vm("a"), Change(labels={"x": "y"}), True, id="labels only"),
    ],
)
def test_allowed_transitions(m: WarmVM, wanted: Change, fine: bool) -> None:
    if fine:
        check_transition(m, wanted)
    else:
        with pytest.raises(InvalidTransition):
            check_transition(m, wanted)
