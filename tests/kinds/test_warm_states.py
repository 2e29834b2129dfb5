"""Transitions between the states of warm VMs."""

from __future__ import annotations

import pytest

from poolhouse.api.kinds.warm_states import (
    COUNTED,
    TRANSITIONS,
    UNCLAIMED,
    WarmState,
    may_follow,
    may_return,
    parse_state,
)

P, S, R, A, U, T, H, N = (
    WarmState.PROVISIONING,
    WarmState.STANDING_BY,
    WarmState.READY,
    WarmState.ALLOCATING,
    WarmState.IN_USE,
    WarmState.TERMINATING,
    WarmState.UNHEALTHY,
    WarmState.UNKNOWN,
)

ROWS = [
    pytest.param(None, {P, A}, id="made for its pool, or for a claim that found no other"),
    pytest.param(P, {S, R, H, T}, id="provisioning"),
    pytest.param(S, {R, H, N, T}, id="on its way to standby"),
    pytest.param(R, {A, S, H, N, T}, id="ready: claimed, demoted, failing or unheard of"),
    pytest.param(A, {U, T}, id="given to a claim: handed over, or destroyed"),
    pytest.param(U, {T}, id="used: never again for anybody else"),
    pytest.param(H, {P, N, T}, id="unhealthy: well again from the beginning"),
    pytest.param(N, {R, S, H, T}, id="unknown: as it was, or failing"),
    pytest.param(T, set(), id="to be deleted, whatever happens"),
]


@pytest.mark.parametrize(("before", "after"), ROWS)
def test_allowed_transitions(before: WarmState | None, after: set[WarmState]) -> None:
    assert {each for each in WarmState if may_follow(before, each) and each is not before} == after


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == {None, *WarmState}


def test_the_same_state_is_always_allowed() -> None:
    assert all(may_follow(each, each) for each in WarmState)


def test_an_activated_vm_cannot_become_ready_again() -> None:
    assert may_return(A, activated=False)
    assert not may_return(A, activated=True)
    assert not any(may_return(each, activated=False) for each in (None, *WarmState) if each is not A)


def test_reserved_and_used_vms_do_not_belong_to_the_pool() -> None:
    assert set(WarmState) - UNCLAIMED == {A, U, T}
    assert COUNTED < UNCLAIMED
    assert H not in COUNTED


@pytest.mark.parametrize(
    ("label", "found"),
    [("Ready", R), ("PENDING_POD_PROVISIONING", A), ("ready", None), ("", None), (None, None)],
)
def test_a_label_is_parsed(label: str | None, found: WarmState | None) -> None:
    assert parse_state(label) is found
