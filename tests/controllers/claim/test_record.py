"""What is known beside the stores."""

from __future__ import annotations

from dataclasses import replace

from controllers.claim.record import SHOWN_SECONDS, ClaimRecord
from tests.controllers.claim.builders import a_claim, taken


def test_what_we_wrote_is_known_until_the_store_shows_it() -> None:
    memory, old = ClaimRecord(certain=True), taken(resource_version="5")
    new = replace(old, resource_version="6", activated=True)
    memory.note(new, 0.0)
    (known,) = memory.known([old], 1.0)
    assert (known.resource_version, known.activated) == ("6", True)
    later = replace(old, resource_version="7")
    assert memory.known([later], 2.0) == (later,)
    assert memory.known([old], 3.0) == (old,), "and what was shown once is not remembered"


def test_what_the_store_has_not_shown_at_all_is_known_for_a_while() -> None:
    memory, made = ClaimRecord(certain=True), taken()
    memory.note(made, 0.0)
    assert [m.uid for m in memory.known([], SHOWN_SECONDS - 1)] == [made.uid]
    assert memory.certain
    assert memory.known([], SHOWN_SECONDS + 1) == ()
    assert not memory.certain, "then it is to be looked for"


def test_what_we_deleted_stays_deleted_while_its_last_version_is_shown() -> None:
    memory, m = ClaimRecord(), taken(resource_version="5")
    memory.note(replace(m, deleting=True), 0.0)
    assert [each.deleting for each in memory.known([m], 1.0)] == [True]
    gone = replace(m, deleting=True, resource_version="6")
    assert memory.known([gone], 2.0) == (gone,)


def test_a_claim_is_the_later_of_what_is_shown_and_what_we_wrote() -> None:
    memory, shown, written = ClaimRecord(), a_claim(resourceVersion="7"), a_claim(resourceVersion="8")
    memory.claim = written
    assert memory.latest(shown) is written
    newer = a_claim(resourceVersion="9")
    assert memory.latest(newer) is newer
    memory.claim = written
    other = a_claim(uid="another", resourceVersion="1")
    assert memory.latest(other) is other, "one of the same name is another one"
