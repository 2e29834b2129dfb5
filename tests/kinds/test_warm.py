"""Which state of a warm machine may follow which."""

from __future__ import annotations

import pytest

from kinds.warm import DEPTH, FOLLOWS, UNCLAIMED, Warm, follows, returned, state

P, S, R, A, U, T, H, N = (
    Warm.PROVISIONING,
    Warm.STANDING_BY,
    Warm.READY,
    Warm.ALLOCATING,
    Warm.IN_USE,
    Warm.TERMINATING,
    Warm.UNHEALTHY,
    Warm.UNKNOWN,
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
def test_a_state_is_followed_by_these_and_no_others(before: Warm | None, after: set[Warm]) -> None:
    assert {each for each in Warm if follows(before, each) and each is not before} == after


def test_every_state_has_its_row() -> None:
    assert set(FOLLOWS) == {None, *Warm}


def test_the_same_state_again_is_no_change() -> None:
    assert all(follows(each, each) for each in Warm)


def test_only_who_was_never_activated_comes_back_from_a_claim() -> None:
    assert returned(A, activated=False)
    assert not returned(A, activated=True)
    assert not any(returned(each, activated=False) for each in (None, *Warm) if each is not A)


def test_what_is_used_or_given_away_is_no_pools() -> None:
    assert set(Warm) - UNCLAIMED == {A, U, T}
    assert DEPTH < UNCLAIMED
    assert H not in DEPTH


@pytest.mark.parametrize(
    ("label", "found"),
    [("Ready", R), ("PENDING_POD_PROVISIONING", A), ("ready", None), ("", None), (None, None)],
)
def test_a_label_names_a_state_or_none(label: str | None, found: Warm | None) -> None:
    assert state(label) is found
