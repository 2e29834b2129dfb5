"""Each sentence of the designs has a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolhouse.generate.designs import SENTENCES, TITLES
from poolhouse.generate.sentences import TESTS, NamedTest, marked


@pytest.fixture(scope="module")
def tests() -> dict[str, list[NamedTest]]:
    return marked()


def test_each_sentence_has_a_test(tests: dict[str, list[NamedTest]]) -> None:
    assert [each.number for each in SENTENCES if not tests.get(each.number)] == []


def test_tests_name_known_sentences(tests: dict[str, list[NamedTest]]) -> None:
    assert sorted(tests.keys() - {each.number for each in SENTENCES}) == []


def test_numbers_are_unique_and_consecutive() -> None:
    for design in TITLES:
        numbers = [each.number for each in SENTENCES if each.design == design]
        assert numbers == [f"{design}.{place}" for place in range(1, len(numbers) + 1)]
    assert {each.design for each in SENTENCES} == TITLES.keys()


def test_a_sentence_that_differs_links_to_a_heading() -> None:
    lines = (TESTS / "designs" / "README.md").read_text().splitlines()
    anchors = {line.lstrip("#").strip().lower().replace(" ", "-") for line in lines if line.startswith("#")}
    assert {each.differs for each in SENTENCES} - {""} <= anchors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '@pytest.mark.sentence("1", "2")\ndef test_a(): ...',
            {"1": [("test_a", "")], "2": [("test_a", "")]},
            id="a function",
        ),
        pytest.param(
            '@pytest.mark.parametrize("x", [pytest.param(1, id="one", marks=pytest.mark.sentence("1"))])\n'
            "async def test_a(x): ...",
            {"1": [("test_a", "one")]},
            id="a row",
        ),
        pytest.param(
            'ROWS = [pytest.param(1, id="one", marks=pytest.mark.sentence("1"))]\n'
            '@pytest.mark.parametrize("x", ROWS)\ndef test_a(x): ...',
            {"1": [("test_a", "one")]},
            id="a row of a list",
        ),
        pytest.param("def test_a(): ...", {}, id="no mark"),
    ],
)
def test_marks_are_found(tmp_path: Path, text: str, expected: dict[str, list[tuple[str, str]]]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(text)
    found = marked(tmp_path / "tests")
    assert found == {n: [NamedTest("tests/test_it.py", *each) for each in tests] for n, tests in expected.items()}
