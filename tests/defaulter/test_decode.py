"""What counts as a request's JSON: nothing that two readers would read in two ways, nothing that can't be answered."""

from __future__ import annotations

import pytest

from defaulter.document import MOST_LEVELS, MOST_VALUES, decode, halves
from defaulter.errors import MalformedBody
from webhook import body as webhook


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "is not JSON", id="nothing"),
        pytest.param(b"[]", "is JSON, but no object", id="a list"),
        pytest.param(b'{"a": NaN}', "NaN is no number", id="a number that is none"),
        pytest.param(b'{"a": 1e999}', "1e999 is too large a number", id="a number that would be answered as Infinity"),
        pytest.param(b'{"a": "\xff"}', "can't decode byte 0xff", id="bytes that are no text"),
        pytest.param(b'{"a": {"b": 1, "b": 2}}', "'b' is given twice", id="a field given twice"),
        pytest.param(b'{"a":' * 100_000, "nested deeper", id="endless depth"),
        pytest.param(b'{"a":' * 101 + b"1" + b"}" * 101, "nested deeper", id="a level too deep"),
        pytest.param(b'{"a": [' + b"0," * 200_001 + b"0]}", "more than 200000 values", id="a value too many"),
        pytest.param(b'{"a": ' + b"1" * 5000 + b"}", "too large a number", id="a number without end"),
        pytest.param(b'{"a": 9223372036854775808}', "too large a number", id="a number of 65 bits"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}', "byte order mark", id="a byte order mark"),
        pytest.param('{"a": 1}'.encode("utf-16"), "is not UTF-8", id="another encoding"),
        pytest.param(b'{"a": "\xed\xa0\x80"}', "is not UTF-8", id="half a character, as bytes"),
    ],
)
def test_what_is_no_json_is_said_to_be_none(body: bytes, sentence: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        decode(body)
    assert sentence in refused.value.problems[0].message
    with pytest.raises(webhook.Unreadable):
        webhook.parse(body)


def test_both_doors_have_the_same_limits() -> None:
    assert (MOST_LEVELS, MOST_VALUES) == (webhook.DEPTH_LIMIT, webhook.VALUES_LIMIT)
    assert decode(b'{"a":' * 99 + b"1" + b"}" * 99)


def test_half_a_character_is_found_wherever_it_stands() -> None:
    body = b'{"metadata": {"name": "\\uD800"}, "spec": [{"\\udfff": 1}, "\\ud83d\\ude00"]}'
    assert [problem.path for problem in halves(body, decode(body))] == ["metadata.name", "spec[0]"]


def test_whole_characters_pass_however_they_are_written() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00", "b": 1.5}') == {"a": "😀", "b": 1.5}
