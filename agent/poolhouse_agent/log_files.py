"""The log files of a container, in the format of Kubernetes' container runtimes: `TIME STREAM F LINE`.

Each run of a container has files of its own, named by the number of restarts before it: `0.log` is written, and
`0.log.1` is the newest of the files that were full.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

MAX_BYTES, MAX_FILES = 10 << 20, 5
MAX_LINE_BYTES = 16 << 10
FOLLOW_SECONDS = 0.2
MESSAGE_LINES, MESSAGE_BYTES = 80, 2048


class LogWriter:
    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        self._path, self._max_bytes, self._max_files = path, max_bytes, max_files
        self._file = self._open()
        self._rest: dict[str, bytes] = {}
        """the beginning of a line of each stream"""

    def write(self, stream: str, data: bytes, now: datetime) -> None:
        *lines, rest = (self._rest.pop(stream, b"") + data).split(b"\n")
        for line in lines:
            self._write(stream, "F", line, now)
        while len(rest) >= MAX_LINE_BYTES:
            self._write(stream, "P", rest[:MAX_LINE_BYTES], now)
            rest = rest[MAX_LINE_BYTES:]
        self._rest[stream] = rest

    def close(self, now: datetime) -> None:
        """Writes the last line of each stream, also if it has no line feed, and closes the file."""
        for stream, rest in self._rest.items():
            if rest:
                self._write(stream, "F", rest, now)
        self._file.close()

    def _open(self) -> BinaryIO:
        return self._path.open("ab", buffering=0)

    def _write(self, stream: str, tag: str, line: bytes, now: datetime) -> None:
        record = f"{now.strftime('%Y-%m-%dT%H:%M:%S.%f')}000Z {stream} {tag} ".encode() + line + b"\n"
        if self._file.tell() and self._file.tell() + len(record) > self._max_bytes:
            self._rotate()
        self._file.write(record)

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._max_files - 1, 0, -1):
            older = self._path if number == 1 else _numbered(self._path, number - 1)
            if older.exists():
                older.replace(_numbered(self._path, number))
        self._file = self._open()


@dataclass(frozen=True)
class LogOptions:
    """The options of `kubectl logs`."""

    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


class LogReader:
    """Reads the log of one run."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self._path, self._options = path, options
        self._left = options.limit_bytes

    async def read(self, is_running: Callable[[], bool], follow: bool) -> AsyncIterator[bytes]:
        """Yields the content. With `follow`, the content ends after the end of the run."""
        current: BinaryIO | None = self._path.open("rb") if self._path.exists() else None
        selected = (line for line in self._stored(current) if self._is_recent(line))
        tail = self._options.tail_lines
        for line in selected if tail is None else _last_lines(selected, tail):
            yield self._content(line)
        while follow and self._left != 0:
            running = is_running()
            current, lines = self._new_lines(current)
            for line in lines:
                yield self._content(line)
            if not running and not lines:
                break
            await asyncio.sleep(0 if lines else FOLLOW_SECONDS)
        if current:
            current.close()

    def _stored(self, current: BinaryIO | None) -> Iterator[bytes]:
        for number in range(MAX_FILES - 1, 0, -1):
            if _numbered(self._path, number).exists():
                with _numbered(self._path, number).open("rb") as full:
                    yield from full
        yield from current or ()

    def _new_lines(self, current: BinaryIO | None) -> tuple[BinaryIO | None, list[bytes]]:
        """Reads on, and goes to the next file after a rotation."""
        lines = current.readlines() if current else []
        if not lines and self._path.exists() and (current is None or not _is_same(current, self._path)):
            if current:
                lines = current.readlines()
                current.close()
            current = self._path.open("rb")
            lines += current.readlines()
        return current, lines

    def _is_recent(self, line: bytes) -> bool:
        since = self._options.since
        return (
            since is None or datetime.fromisoformat(line.split(b" ", 1)[0][:26].decode()).replace(tzinfo=UTC) >= since
        )

    def _content(self, line: bytes) -> bytes:
        time, _, tag, text = line.split(b" ", 3)
        text = text.removesuffix(b"\n") if tag == b"P" else text
        text = time + b" " + text if self._options.timestamps else text
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text


def last_lines(path: Path) -> str:
    """The end of a log, for the message of a container that has failed."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4 * MESSAGE_BYTES))
        lines = file.readlines()[-MESSAGE_LINES:]
    texts = (line.split(b" ", 3)[-1] for line in lines if line.count(b" ") >= 3)
    return b"".join(texts)[-MESSAGE_BYTES:].decode(errors="replace").rstrip("\n")


def remove_old_logs(directory: Path, restarts: int) -> None:
    """Keeps the logs of this run and of the previous one."""
    for path in directory.glob("*.log*"):
        if int(path.name.split(".")[0]) < restarts - 1:
            path.unlink(missing_ok=True)


def _last_lines(lines: Iterator[bytes], count: int) -> deque[bytes]:
    """The last lines of the application: a line in parts is one."""
    found: deque[bytes] = deque()
    whole = 0
    for line in lines:
        found.append(line)
        whole += line.split(b" ", 3)[2] == b"F"
        while found and whole > count:
            whole -= found.popleft().split(b" ", 3)[2] == b"F"
    return found if count else deque()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _is_same(file: BinaryIO, path: Path) -> bool:
    return os.fstat(file.fileno()).st_ino == path.stat().st_ino
