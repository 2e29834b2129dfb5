from __future__ import annotations

from datetime import UTC, datetime, timedelta

from runtime.series import COMBINED, NOTES_LIMIT, OVER_SECONDS, SERIES_LIMIT, Correlator, Subject

START = datetime(2026, 1, 1, tzinfo=UTC)


def subject(name: str = "pool", reason: str = "ScaledOut") -> Subject:
    return Subject((("kind", "VirtualMachinePool"), ("name", name)), "Normal", reason, "ScaleOut")


def see(correlator: Correlator, note: str, now: float, name: str = "pool") -> str | None:
    made = correlator.see(subject(name), note, now, START + timedelta(seconds=now))
    return made.note if made else None


def test_the_first_is_an_event_and_repeats_are_its_count() -> None:
    correlator = Correlator()
    assert see(correlator, "made a", 0) == "made a"
    assert see(correlator, "made a", 1) is None
    assert see(correlator, "made a", 2) is None
    assert correlator.next_due() == 10
    assert list(correlator.due(9)) == []
    (due,) = correlator.due(10)
    assert (due.count, due.last) == (3, START + timedelta(seconds=2))


def test_what_does_not_repeat_is_never_written_again() -> None:
    correlator = Correlator()
    see(correlator, "made a", 0)
    assert correlator.next_due() is None
    assert list(correlator.due(10_000)) == []
    assert len(correlator) == 0


def test_counts_are_written_less_and_less_often() -> None:
    correlator = Correlator()
    written = []
    for second in range(3600):
        see(correlator, "failed", second)
        written += [each.count for each in correlator.due(second)]
    assert 10 <= len(written) <= 20
    assert written == sorted(written)


def test_what_was_quiet_begins_anew() -> None:
    correlator = Correlator()
    see(correlator, "failed", 0)
    assert see(correlator, "failed", OVER_SECONDS + 1) == "failed"


def test_a_thousand_different_notes_are_a_handful_of_events() -> None:
    correlator = Correlator()
    made = [note for note in (see(correlator, f"made vm-{n}", n / 100) for n in range(1000)) if note]
    assert made[:NOTES_LIMIT] == [f"made vm-{n}" for n in range(NOTES_LIMIT)]
    assert made[NOTES_LIMIT:] == [COMBINED + f"made vm-{NOTES_LIMIT}"]
    (due,) = correlator.due(20)
    assert due.count == 1000 - NOTES_LIMIT


def test_other_subjects_are_other_events() -> None:
    correlator = Correlator()
    assert see(correlator, "x", 0, "a")
    assert see(correlator, "x", 0, "b")
    assert correlator.see(subject("a", "ScaledIn"), "x", 0, START)


def test_it_remembers_no_more_than_its_limit() -> None:
    correlator = Correlator()
    for number in range(SERIES_LIMIT + 100):
        see(correlator, "x", 0, f"pool-{number}")
    assert len(correlator) == SERIES_LIMIT


def test_a_name_is_the_same_for_the_same_occurrence_and_short_enough() -> None:
    long = "a" * 229 + "." + "b" * 23
    names = set()
    for _ in range(2):
        made = Correlator().see(subject(long), "x", 0, START)
        assert made is not None
        names.add(made.name)
    (name,) = names
    assert len(name) <= 253
    assert ".." not in name
