from __future__ import annotations

from poolhouse.runtime.expectations import Expectations


def expectations() -> Expectations[str]:
    return Expectations(timeout_seconds=300)


def test_without_expectations_an_owner_is_satisfied() -> None:
    assert expectations().satisfied("pool", now=0)


def test_an_owner_is_satisfied_when_all_writes_are_observed() -> None:
    e = expectations()
    e.expect("pool", creates=["a", "b"], deletes=["u"], now=0)
    e.creation_observed("pool", "a")
    e.deletion_observed("pool", "u")
    assert not e.satisfied("pool", now=1)
    assert e.open("pool") == ({"b"}, set())
    e.creation_observed("pool", "b")
    assert e.satisfied("pool", now=1)
    assert e.wait_seconds("pool", now=1) is None


def test_an_event_before_the_answer_counts() -> None:
    """An expectation that is recorded after its event would stay until the timeout."""
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.creation_observed("pool", "a")
    assert e.satisfied("pool", now=0)


def test_refused_writes_are_not_expected() -> None:
    e = expectations()
    e.expect("pool", creates=["a", "b"], deletes=["u"], now=0)
    e.write_failed("pool", creates=["a", "b"], deletes=["u"])
    assert e.satisfied("pool", now=0)


def test_a_missing_event_counts_as_observed_after_the_timeout() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=100)
    assert e.wait_seconds("pool", now=150) == 250
    assert not e.satisfied("pool", now=399)
    assert e.satisfied("pool", now=400)
    assert e.open("pool") == (frozenset(), frozenset())


def test_events_count_only_for_their_owner() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.creation_observed("other", "a")
    e.creation_observed("pool", "z")
    e.deletion_observed("pool", "a")
    assert e.satisfied("other", now=0)
    assert not e.satisfied("pool", now=0)


def test_new_expectations_restart_the_timeout() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    e.expect("pool", creates=["b"], now=200)
    e.creation_observed("pool", "b")
    assert not e.satisfied("pool", now=450)
    assert e.satisfied("pool", now=500)


def test_the_timeout_begins_when_the_last_write_ends() -> None:
    """The stores may not show what was written last."""
    e, told = expectations(), list[str]()
    e.subscribe(told.append)
    e.expect("pool", creates=["a", "b"], now=0)
    with e.writing("pool", lambda: 700):
        with e.writing("pool", lambda: 350):
            pass
        e.creation_observed("pool", "a")
        e.expect("other", creates=["x"], now=660)
        assert not e.satisfied("pool", now=661)
        assert e.wait_seconds("pool", now=661) == 300
    e.expect("third", creates=["x"], now=980)
    assert told == ["other"], "the expectations of an owner that writes keep nobody's"
    assert (e.wait_seconds("pool", now=980), e.satisfied("pool", now=980)) == (20, False)
    assert e.satisfied("pool", now=1000)


def test_nothing_stays_of_an_owner_that_has_written() -> None:
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    with e.writing("pool", lambda: 10):
        e.creation_observed("pool", "a")
        assert e.satisfied("pool", now=5)
    assert vars(e) == vars(expectations())


def test_the_end_of_expectations_is_told_once() -> None:
    e, told = expectations(), list[str]()
    e.subscribe(told.append)
    e.expect("pool", creates=["a", "b"], now=0)
    e.creation_observed("pool", "a")
    assert told == []
    e.creation_observed("pool", "b")
    e.creation_observed("pool", "b")
    assert told == ["pool"]


def test_nothing_stays_of_an_owner_for_which_nobody_asks_again() -> None:
    e, told = expectations(), list[str]()
    e.subscribe(told.append)
    for owner, now in (("a", 0), ("b", 1), ("a", 2), ("c", 301), ("d", 302)):
        e.expect(owner, creates=["x"], now=now)
    assert told == ["b", "a"], "those whose timeout is over"


def test_an_empty_expectation_is_satisfied() -> None:
    e = expectations()
    e.expect("pool", now=0)
    assert e.satisfied("pool", now=0)


def test_other_writes_of_an_owner_do_not_delay_the_timeout() -> None:
    """A write that is refused again and again would hold the owner for ever after a lost one."""
    e = expectations()
    e.expect("pool", creates=["a"], now=0)
    with e.writing("pool", lambda: 10.0):
        pass
    assert e.wait_seconds("pool", now=10) == 300
    with e.writing("pool", lambda: 100.0):
        pass
    assert e.wait_seconds("pool", now=100) == 210
