from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.transport import LineSplitter, LineTooLong


@given(lines=st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b.strip())), data=st.data())
def test_however_a_stream_is_cut_its_lines_are_the_same(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    splitter = LineSplitter()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert found == lines
    assert splitter.rest == b"rest"


def test_a_line_may_be_far_longer_than_a_readers_buffer() -> None:
    splitter = LineSplitter()
    for _ in range(3000):
        assert splitter.feed(b"x" * 1000) == []
    assert [len(line) for line in splitter.feed(b"\n")] == [3_000_000]
    assert splitter.rest == b""


def test_a_line_without_end_is_given_up() -> None:
    splitter = LineSplitter(limit_bytes=10)
    splitter.feed(b"1234567890\n1234567890")
    with pytest.raises(LineTooLong):
        splitter.feed(b"1")
