"""What counts as a request's JSON: nothing that two readers would read in two ways, nothing that can't be answered."""

from __future__ import annotations

import pytest

from defaulter.answers import decode
from defaulter.problems import Malformed


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "is not JSON", id="nothing"),
        pytest.param(b"[]", "is JSON, but no object", id="a list"),
        pytest.param(b'{"a": NaN}', "NaN is no number", id="a number that is none"),
        pytest.param(b'{"a": 1e999}', "1e999 is too large a number", id="a number that would be answered as Infinity"),
        pytest.param(b'{"a": "\xff"}', "can't decode byte 0xff", id="bytes that are no text"),
        pytest.param(b'{"a": {"b": 1, "b": 2}}', "'b' is given twice", id="a field given twice"),
        pytest.param(b'{"a":' * 100_000, "nested too deeply", id="endless depth"),
    ],
)
def test_what_is_no_json_is_said_to_be_none(body: bytes, sentence: str) -> None:
    with pytest.raises(Malformed) as refused:
        decode(body)
    assert sentence in refused.value.problems[0].message


def test_whole_characters_pass_however_they_are_written() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00", "b": 1.5}') == {"a": "😀", "b": 1.5}
