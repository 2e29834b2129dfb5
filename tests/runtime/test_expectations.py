from __future__ import annotations

from runtime.expectations import Expectations


def expectations() -> Expectations[str]:
    return Expectations(timeout_seconds=300)


def test_an_owner_of_whom_nothing_is_expected_is_free() -> None:
    assert expectations().satisfied("pool", now=0)


def test_it_waits_until_everything_was_seen() -> None:
    e = expectations()
    e.expect("pool", creates=["a", "b"], deletes=["u"], now=0)
    e.creation_observed("pool", "a")
    e.deletion_observed("pool", "u")
    assert not e.satisfied("pool", now=1)
    assert e.open("pool") == ({"b"}, set())
    e.creation_observed("pool", "b")
    assert e.satisfied("pool", now=1)
    assert e.wait_seconds("pool", now=1) is None


def test_an_event_that_comes_before_the_answer_counts() -> None:
    """Why it is expected before the call: seen first, expected after, it would be waited for until the timeout."""
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.creation_observed("pool", "a")
    assert e.satisfied("pool", now=0)


def test_what_was_refused_is_not_waited_for() -> None:
    e = expectations()
    e.expect("pool", creates=["a", "b"], deletes=["u"], now=0)
    e.write_failed("pool", creates=["a", "b"], deletes=["u"])
    assert e.satisfied("pool", now=0)


def test_what_never_comes_is_waited_for_until_the_timeout() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=100)
    assert e.wait_seconds("pool", now=150) == 250
    assert not e.satisfied("pool", now=399)
    assert e.satisfied("pool", now=400)
    assert e.open("pool") == (frozenset(), frozenset())


def test_owners_and_strangers_do_not_mix() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.creation_observed("other", "a")
    e.creation_observed("pool", "z")
    e.deletion_observed("pool", "a")
    assert e.satisfied("other", now=0)
    assert not e.satisfied("pool", now=0)


def test_new_ones_are_added_to_old_ones_and_the_timeout_begins_anew() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.expect("pool", creates=["b"], now=200)
    e.creation_observed("pool", "b")
    assert not e.satisfied("pool", now=450)
    assert e.satisfied("pool", now=500)


def test_a_new_owner_of_the_same_name_does_not_wait_for_the_old_ones() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.forget("pool")
    assert e.satisfied("pool", now=0)


def test_expecting_nothing_is_nothing() -> None:
    e = expectations()
    e.expect("pool", now=0)
    assert e.satisfied("pool", now=0)
