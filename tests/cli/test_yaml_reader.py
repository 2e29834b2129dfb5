from __future__ import annotations

import pytest

from cli.yaml_reader import InvalidYAML, load, load_all

BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [1", "expected ',' or ']'", id="not YAML"),
        pytest.param("a: &a [*a]", "an alias contains itself", id="an alias that contains itself"),
        pytest.param(BOMB, "expand to more than 200000 values", id="aliases that expand to millions of values"),
        pytest.param("a: " + "9" * 5000, "4300 digits", id="a number that Python does not convert"),
        pytest.param("[" * 5000, "nested too deeply", id="deep nesting"),
        pytest.param("a: !!binary aGk=", "could not determine a constructor", id="bytes, which JSON does not have"),
        pytest.param("? {a: b}\n: c", "unhashable", id="an object as a key"),
        pytest.param(b"\xff\xfe\xff", "unacceptable character", id="not text"),
    ],
)
def test_a_text_that_no_kubernetes_object_has_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidYAML, match=message.replace("]", r"\]")):
        load_all(text)


def test_a_date_is_text_as_in_kubectl() -> None:
    assert load("{a: 2001-01-01, b: 2001-99-99, c: 2001-01-01T00:00:00Z}") == {
        "a": "2001-01-01",
        "b": "2001-99-99",
        "c": "2001-01-01T00:00:00Z",
    }


def test_aliases_and_merge_keys_are_expanded() -> None:
    assert load("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}


def test_empty_documents_are_left_out() -> None:
    assert load_all("---\n---\na: 1\n---\n") == [{"a": 1}]
    assert load("") is None
