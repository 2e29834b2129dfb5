"""Everything hostile that a body may be: one clear sentence with a 4xx each, in bounded time and memory."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.body import BODY_LIMIT_BYTES, DEPTH_LIMIT, VALUES_LIMIT, Unreadable, acceptable, parse


def nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


HOSTILE = [
    pytest.param(b"", 400, "not JSON", id="empty"),
    pytest.param(b"kind: VirtualMachine", 400, "not JSON", id="YAML"),
    pytest.param(b'{"a": 1', 400, "not JSON", id="truncated"),
    pytest.param(b'{"a": 1} {"a": 2}', 400, "not JSON", id="two documents"),
    pytest.param(b'{"a": 1,}', 400, "not JSON", id="a comma too many"),
    pytest.param(b'{"a": 1 /* no */}', 400, "not JSON", id="a comment"),
    pytest.param(b'{"a": "line\nbreak"}', 400, "not JSON", id="a raw line break in a string"),
    pytest.param(b"[]", 400, "a list", id="a list"),
    pytest.param(b'"vm"', 400, "a string", id="a string"),
    pytest.param(b"12", 400, "a number", id="a number"),
    pytest.param(b"true", 400, "a boolean", id="a boolean"),
    pytest.param(b"null", 400, "null", id="null"),
    pytest.param(b"x" * BODY_LIMIT_BYTES, 413, "smaller than", id="3 MiB"),
    pytest.param(b'{"a": 1, "a": 2}', 400, '"a" stands twice', id="a key twice"),
    pytest.param(b'{"x": [{"a": 1, "\\u0061": 2}]}', 400, '"a" stands twice', id="a key twice, escaped once"),
    pytest.param(b'{"a": NaN}', 400, "NaN", id="NaN"),
    pytest.param(b'{"a": -Infinity}', 400, "-Infinity", id="minus infinity"),
    pytest.param(b'{"a": 1e999}', 400, "double", id="a float without end"),
    pytest.param(b'{"a": ' + b"9" * 1_000_000 + b"}", 400, "64 bits", id="a million digits"),
    pytest.param(b'{"a": 9223372036854775808}', 400, "64 bits", id="2 to the 63"),
    pytest.param(b'{"a": "\xff"}', 400, "not UTF-8: byte 7 is 0xff", id="invalid UTF-8"),
    pytest.param('{"a": 1}'.encode("utf-16"), 400, "not UTF-8", id="UTF-16"),
    pytest.param(b"\xef\xbb\xbf{}", 400, "byte order mark", id="a byte order mark"),
    pytest.param(b'{"a": "\\ud800"}', 400, "surrogate", id="half a surrogate pair"),
    pytest.param(b'{"\\uDfff": 1}', 400, "surrogate", id="half a surrogate pair as a key"),
    pytest.param(nested(DEPTH_LIMIT + 1), 400, "nested deeper", id="a level too deep"),
    pytest.param(b"[" * 100_000, 400, "nested deeper", id="deep enough to end a recursive parser"),
    pytest.param(b'{"a":' * 60_000, 400, "nested deeper", id="deep objects"),
    pytest.param(b"[" + b"[]," * VALUES_LIMIT + b"[]]", 413, "values", id="a body full of small lists"),
    pytest.param(b'{"a":[' + b"1," * 1_400_000 + b"1]}", 413, "values", id="a body full of numbers"),
]


@pytest.mark.parametrize(("raw", "status", "sentence"), HOSTILE)
def test_hostile_bodies_get_a_sentence(raw: bytes, status: int, sentence: str) -> None:
    began = time.process_time()
    with pytest.raises(Unreadable) as refusal:
        parse(raw)
    assert refusal.value.status == status
    assert sentence in refusal.value.message
    assert len(refusal.value.message) < 250
    assert refusal.value.message.isprintable()
    assert time.process_time() - began < 2


WELCOME: list[Any] = [
    pytest.param({"a": "\u202e\u0000<>&'\"]]>"}, id="bidi, NUL and markup are data"),
    pytest.param({"a": "😀"}, id="a whole surrogate pair"),
    pytest.param({"a": -(2**63), "b": 2**63 - 1, "c": 0.1}, id="numbers that fit"),
    pytest.param({"annotation": "x" * 1_000_000}, id="a megabyte of annotation"),
    pytest.param({"disks": [{"name": f"d{i}", "disk": {"bus": "virtio"}} for i in range(10_000)]}, id="10,000 disks"),
    pytest.param(json.loads(nested(DEPTH_LIMIT)), id="as deep as may be"),
]


@pytest.mark.parametrize("document", WELCOME)
def test_odd_but_honest_bodies_are_read_as_they_are(document: Any) -> None:
    assert parse(json.dumps(document).encode()) == document


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:1e-\\ud8 ', max_size=60).map(str.encode))
def test_no_bytes_at_all_make_it_fail_otherwise(raw: bytes) -> None:
    with contextlib.suppress(Unreadable):
        json.dumps(parse(raw)).encode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param((None, None, None), 415, id="no content type"),
        pytest.param(("text/plain", None, None), 415, id="text"),
        pytest.param(("application/yaml", None, None), 415, id="YAML"),
        pytest.param(("application/json", "gzip", None), 415, id="gzip: no decoder, no bomb"),
        pytest.param(("application/json", "br, gzip", None), 415, id="two encodings"),
        pytest.param(("application/json", None, str(BODY_LIMIT_BYTES)), 413, id="a length that is announced"),
    ],
)
def test_headers_that_rule_it_out(headers: tuple[str | None, str | None, str | None], status: int) -> None:
    with pytest.raises(Unreadable) as refusal:
        acceptable(*headers)
    assert refusal.value.status == status


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_headers_that_are_welcome(content_type: str) -> None:
    acceptable(content_type, None, "17")
