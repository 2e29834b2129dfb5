"""Repairs that another client undoes become rarer, and refused labels are reported once."""

from __future__ import annotations

from itertools import pairwise

from controllers.migrationpolicy.memory import PAUSES, RESET_SECONDS, PolicyMemory, UnlabelledVMIs

A, B = ("shop", "a"), ("shop", "b")


def test_the_first_repair_has_no_pause() -> None:
    assert PolicyMemory("gold").repair_pause(1, 0) == 0


def test_the_pauses_between_repairs_grow() -> None:
    memory, now, pauses = PolicyMemory("gold"), 0.0, []
    for _ in range(12):
        assert memory.repair_pause(1, now) == 0
        pauses.append(memory.repair_pause(1, now))
        now += pauses[-1]
    assert pauses[0] <= 2
    assert all(later > sooner for sooner, later in pairwise(pauses[:7]))
    assert max(pauses) <= PAUSES.cap_seconds


def test_a_change_by_the_author_resets_the_pauses() -> None:
    memory = PolicyMemory("gold")
    assert memory.repair_pause(1, 0) == 0
    assert memory.repair_pause(2, 0) == 0


def test_the_pauses_reset_after_a_while_without_a_repair() -> None:
    memory = PolicyMemory("gold")
    for _ in range(5):
        memory.repair_pause(1, 0)
    now = RESET_SECONDS + 1
    assert memory.repair_pause(1, now) == 0
    assert memory.repair_pause(1, now) <= PAUSES.base_seconds


def test_a_refused_label_is_reported_once() -> None:
    known = UnlabelledVMIs()
    assert known.refused(B, "gold", "b is forbidden") == ("gold",)
    assert known.refused(B, "gold", "b is forbidden") == ()
    assert known.of("gold") == (1, "b is forbidden")
    assert known.refused(A, "gold", "a is forbidden") == ("gold",)
    assert known.of("gold") == (2, "a is forbidden")
    assert set(known.refused(A, "plain", "a is forbidden")) == {"gold", "plain"}
    assert (known.of("gold"), known.of("plain")) == ((1, "b is forbidden"), (1, "a is forbidden"))
    assert known.refused(A, None, "a is forbidden") == ("plain",)
    assert (known.resolved(A), known.resolved(B)) == ((), ("gold",))
    assert (known.of("gold"), known.of("plain")) == ((0, ""), (0, ""))
