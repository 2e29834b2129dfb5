"""Hostile bodies get one clear message, in bounded time and memory."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse.service.strict_json import (
    MAX_DEPTH,
    MAX_VALUES,
    InvalidJSON,
    TooManyValues,
    loads,
    lone_surrogates,
    parse_any,
    parse_canonical,
)


def nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


HOSTILE = [
    pytest.param(b"", "not JSON", id="empty"),
    pytest.param(b"kind: VirtualMachine", "not JSON", id="YAML"),
    pytest.param(b'{"a": 1', "not JSON", id="truncated"),
    pytest.param(b'{"a": 1} {"a": 2}', "not JSON", id="two documents"),
    pytest.param(b'{"a": 1,}', "not JSON", id="a trailing comma"),
    pytest.param(b'{"a": 1 /* no */}', "not JSON", id="a comment"),
    pytest.param(b'{"a": "line\nbreak"}', "not JSON", id="a raw line break in a string"),
    pytest.param(b"[]", "a list", id="a list"),
    pytest.param(b'"vm"', "a string", id="a string"),
    pytest.param(b"12", "a number", id="a number"),
    pytest.param(b"true", "a boolean", id="a boolean"),
    pytest.param(b"null", "null", id="null"),
    pytest.param(b'{"a": 1, "a": 2}', 'duplicate key "a"', id="a duplicate key"),
    pytest.param(b'{"x": [{"a": 1, "\\u0061": 2}]}', 'duplicate key "a"', id="a duplicate key, escaped once"),
    pytest.param(b'{"a": NaN}', "NaN", id="NaN"),
    pytest.param(b'{"a": -Infinity}', "-Infinity", id="minus infinity"),
    pytest.param(b'{"a": 1e999}', "double", id="a float beyond a double"),
    pytest.param(b'{"a": ' + b"9" * 1_000_000 + b"}", "64 bits", id="a million digits"),
    pytest.param(b'{"a": 9223372036854775808}', "64 bits", id="2 to the 63"),
    pytest.param(b'{"a": "\xff"}', "not UTF-8: byte 7 is 0xff", id="invalid UTF-8"),
    pytest.param('{"a": 1}'.encode("utf-16"), "not UTF-8", id="UTF-16"),
    pytest.param(b"\xef\xbb\xbf{}", "byte order mark", id="a byte order mark"),
    pytest.param(b'{"a": "\\ud800"}', "surrogate", id="a lone surrogate"),
    pytest.param(b'{"\\uDfff": 1}', "surrogate", id="a lone surrogate in a key"),
    pytest.param(nested(MAX_DEPTH + 1), "nested deeper", id="a level too deep"),
    pytest.param(b"[" * 100_000, "nested deeper", id="deep enough to end a recursive parser"),
    pytest.param(b'{"a":' * 60_000, "nested deeper", id="deep objects"),
    pytest.param(b"[" + b"[]," * MAX_VALUES + b"[]]", "values", id="a body full of small lists"),
    pytest.param(b'{"a":"\\"' + b'\\",[' * MAX_VALUES, "not JSON", id="a string without an end"),
    pytest.param(b'{"a":[' + b"1," * 1_400_000 + b"1]}", "values", id="a body full of numbers"),
    pytest.param(b"{" + b",".join(b'"%d":1' % n for n in [*range(99_000), 98_999]) + b"}", "98999", id="many keys"),
]


@pytest.mark.parametrize(("body", "message"), HOSTILE)
def test_a_hostile_body_is_refused_with_a_message(body: bytes, message: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidJSON) as refusal:
        loads(body)
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 250
    assert str(refusal.value).isprintable()
    assert isinstance(refusal.value, TooManyValues) is (message == "values")
    assert time.process_time() - began < 2


@pytest.mark.parametrize("digits", ["9223372036854775808", "-9223372036854775809", "1" + "0" * 300])
def test_a_large_integer_becomes_a_float_where_it_may(digits: str) -> None:
    assert loads(f'{{"a": {digits}, "b": 1}}'.encode(), large_integers=True) == {"a": float(digits), "b": 1}
    with pytest.raises(InvalidJSON, match="double"):
        loads(b'{"a": ' + b"9" * 400 + b"}", large_integers=True)


WELCOME: list[Any] = [
    pytest.param({"a": "\u202e\u0000<>&'\"]]>"}, id="bidi, NUL and markup are data"),
    pytest.param({"a": "😀"}, id="a whole surrogate pair"),
    pytest.param({"a": -(2**63), "b": 2**63 - 1, "c": 0.1}, id="numbers that fit"),
    pytest.param({"annotation": "x" * 1_000_000}, id="a megabyte of annotation"),
    pytest.param({"userData": '",[{\\' * MAX_VALUES}, id="a text full of what separates values"),
    pytest.param({"disks": [{"name": f"d{i}", "disk": {"bus": "virtio"}} for i in range(10_000)]}, id="10,000 disks"),
    pytest.param(json.loads(nested(MAX_DEPTH)), id="as deep as allowed"),
]


@pytest.mark.parametrize("form", [{}, {"separators": (",", ":"), "ensure_ascii": False}], ids=["spaced", "canonical"])
@pytest.mark.parametrize("document", WELCOME)
def test_an_unusual_valid_body_is_parsed_unchanged(document: Any, form: Any) -> None:
    assert loads(json.dumps(document, **form).encode()) == document


def canonical_form(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), DOCUMENTS, max_size=4).map(canonical_form)
    | st.text(alphabet='{}[]",:1e-.\\ud8a', max_size=60).map(str.encode)
)
def test_the_fast_reader_reads_what_the_strict_one_reads(body: bytes) -> None:
    found = parse_canonical(body)
    assert found is None or repr(found) == repr(parse_any(body))


@pytest.mark.parametrize("body", [each.values[0] for each in HOSTILE])
def test_the_fast_reader_accepts_no_hostile_body(body: Any) -> None:
    compact = body.replace(b": ", b":").replace(b", ", b",") if len(body) < 100 else body
    with contextlib.suppress(InvalidJSON):
        assert parse_canonical(compact) is None


def test_a_body_of_an_api_server_takes_the_fast_reader() -> None:
    assert (
        parse_canonical(b'{"kind":"AdmissionReview","n":-3,"f":0.5,"t":"\xc3\xa9\\n","l":[true,null,{}]}\n') is not None
    )


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:1e-\\ud8 ', max_size=60).map(str.encode))
def test_no_body_raises_another_error(body: bytes) -> None:
    with contextlib.suppress(InvalidJSON):
        json.dumps(loads(body)).encode()


def test_lone_surrogates_are_found_by_path() -> None:
    body = b'{"a": {"n": "\\ud800"}, "b": ["\\udfff"], "c": [{"\\udc00": 1}], "d": "\\ud83d\\ude00"}'
    assert [*lone_surrogates(loads(body, allow_lone_surrogates=True))] == [("a", "n"), ("b", 0), ("c", 0)]
