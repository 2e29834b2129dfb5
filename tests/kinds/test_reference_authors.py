"""The record of who wrote the references of an object."""

from __future__ import annotations

import pytest

from poolhouse.api.kinds.reference_authors import MAX_BYTES, Author, author_of, read_record, record

ANN, BOB = Author("ann", ("devs", "system:authenticated")), Author("bob")
FEDORA, DEBIAN = "DataSource images/fedora", "DataSource images/debian"


def test_a_record_is_read_as_it_was_written() -> None:
    written = record({FEDORA: ANN}, [DEBIAN], BOB)
    assert read_record(written) == {FEDORA: ANN, DEBIAN: BOB}
    assert written == record({DEBIAN: BOB}, [FEDORA], ANN), "equal records have equal texts"


def test_an_author_is_written_once() -> None:
    assert record({}, [FEDORA, DEBIAN], ANN).count("system:authenticated") == 1


def test_no_reference_has_no_record() -> None:
    assert record({}, (), ANN) == ""


def test_too_many_groups_are_left_out() -> None:
    crowd = Author("carol", tuple(f"oidc:group-{number}" for number in range(MAX_BYTES // 10)))
    written = record({FEDORA: ANN}, [DEBIAN], crowd)
    assert len(written) < MAX_BYTES
    assert read_record(written) == {FEDORA: ANN, DEBIAN: Author("carol")}


def test_the_record_has_nothing_else_of_the_user() -> None:
    user = {"username": "ann", "uid": "7", "groups": ["devs"], "extra": {"assertion": ["eyJ"]}}
    written = record({}, [FEDORA], author_of(user))
    assert read_record(written)[FEDORA].user == {"username": "ann", "groups": ["devs"]}
    assert "eyJ" not in written


@pytest.mark.parametrize(
    "annotation",
    [
        *(None, "", "me", "7", "{}", "[7]", "[{}]", '[{"username":"ann","groups":7,"references":[""]}]', 7),
        pytest.param("[" * 100_000, id="lists in lists"),
    ],
)
def test_a_text_that_admission_has_not_written_has_no_authors(annotation: object) -> None:
    assert read_record(annotation) == {}
