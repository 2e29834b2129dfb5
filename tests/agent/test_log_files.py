"""Log files are bounded, and readers get what `kubectl logs` promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from poolhouse_agent.log_files import LogOptions, LogReader, LogWriter, last_lines, remove_old_logs

START = datetime(2026, 11, 28, 5, 0, tzinfo=UTC)


def write(path: Path, *texts: str, **bounds: Any) -> None:
    """Writes each text one second after the one before."""
    writer = LogWriter(path, **bounds)
    for second, text in enumerate(texts):
        writer.write("stdout", text.encode(), START + timedelta(seconds=second))
    writer.close(START + timedelta(seconds=len(texts)))


def sizes_in(directory: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in directory.iterdir()}


ALL = LogOptions()


async def read(path: Path, options: LogOptions = ALL) -> str:
    return b"".join([each async for each in LogReader(path, options).read(lambda: False, follow=True)]).decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(LogOptions(), "one\ntwo\nthree\nlast\n", id="everything, and an end for the last line"),
        pytest.param(LogOptions(tail_lines=2), "three\nlast\n", id="the last lines"),
        pytest.param(LogOptions(tail_lines=0), "", id="no lines"),
        pytest.param(LogOptions(tail_lines=99), "one\ntwo\nthree\nlast\n", id="more lines than there are"),
        pytest.param(LogOptions(limit_bytes=6), "one\ntw", id="a limit in the middle of a line"),
        pytest.param(LogOptions(since=START + timedelta(seconds=2)), "three\nlast\n", id="lines since a time"),
        pytest.param(
            LogOptions(timestamps=True, tail_lines=1), "2026-11-28T05:00:04.000000000Z last\n", id="with timestamps"
        ),
    ],
)
async def test_options(tmp_path: Path, options: LogOptions, expected: str) -> None:
    write(tmp_path / "0.log", "one\n", "two\n", "three\nla", "st")
    assert await read(tmp_path / "0.log", options) == expected


async def test_a_long_line_is_stored_in_parts_and_read_as_one(tmp_path: Path) -> None:
    line = "x" * 50_000
    write(tmp_path / "0.log", f"before\n{line}\n")
    assert await read(tmp_path / "0.log") == f"before\n{line}\n"
    assert await read(tmp_path / "0.log", LogOptions(tail_lines=1)) == f"{line}\n"


async def test_files_are_bounded_and_the_newest_lines_stay(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(1000)]
    write(tmp_path / "0.log", *lines, max_bytes=1000, max_files=3)
    sizes = sizes_in(tmp_path)
    assert sizes.keys() == {"0.log", "0.log.1", "0.log.2"}
    assert max(sizes.values()) <= 1000
    kept = (await read(tmp_path / "0.log")).splitlines(True)
    assert kept == lines[-len(kept) :]
    assert len(kept) > 40


async def test_a_reader_that_follows_goes_on_after_a_rotation(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "0.log", max_bytes=300, max_files=3)
    lines = [f"line {number}\n".encode() for number in range(12)]
    left, got = iter(lines), []

    def write_more() -> bool:
        """Writes a line each time that the reader asks whether the container still runs."""
        line = next(left, None)
        if line is not None:
            writer.write("stdout", line, START)
        return line is not None

    async for text in LogReader(tmp_path / "0.log", LogOptions()).read(write_more, follow=True):
        got.append(text)
    writer.close(START)
    assert got == lines


async def test_no_log_is_no_content(tmp_path: Path) -> None:
    assert await read(tmp_path / "0.log") == ""
    assert last_lines(tmp_path / "0.log") == ""


def test_the_end_of_a_log_is_the_message_of_a_failure(tmp_path: Path) -> None:
    write(tmp_path / "0.log", *(f"line {number}\n" for number in range(500)), "the reason\n")
    message = last_lines(tmp_path / "0.log")
    assert message.endswith("line 499\nthe reason")
    assert len(message) <= 2048


def test_only_the_previous_run_keeps_its_log(tmp_path: Path) -> None:
    for name in ("8.log", "8.log.1", "9.log", "10.log", "10.log.1", "11.log"):
        (tmp_path / name).touch()
    remove_old_logs(tmp_path, 11)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["10.log", "10.log.1", "11.log"]
