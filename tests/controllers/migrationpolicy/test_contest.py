from __future__ import annotations

from itertools import pairwise

from controllers.migrationpolicy.contest import OVER_SECONDS, PAUSES, Contest


def test_the_first_repair_is_made_at_once() -> None:
    assert Contest().pause("gold", 1, 0) == 0


def test_what_is_undone_again_and_again_is_repaired_ever_more_rarely() -> None:
    contest, now, pauses = Contest(), 0.0, []
    for _ in range(12):
        assert contest.pause("gold", 1, now) == 0
        pauses.append(contest.pause("gold", 1, now))
        now += pauses[-1]
    assert pauses[0] <= 2
    assert all(later > sooner for sooner, later in pairwise(pauses[:7]))
    assert max(pauses) <= PAUSES.cap_seconds


def test_a_policy_that_its_author_changed_is_no_contest() -> None:
    contest = Contest()
    assert contest.pause("gold", 1, 0) == 0
    assert contest.pause("gold", 2, 0) == 0


def test_a_contest_that_is_over_is_forgotten() -> None:
    contest = Contest()
    for _ in range(5):
        contest.pause("gold", 1, 0)
    now = OVER_SECONDS + 1
    assert contest.pause("gold", 1, now) == 0
    assert contest.pause("gold", 1, now) <= PAUSES.base_seconds


def test_one_policys_contest_is_not_anothers() -> None:
    contest = Contest()
    contest.pause("gold", 1, 0)
    assert contest.pause("lead", 1, 0) == 0
