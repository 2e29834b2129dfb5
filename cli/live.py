"""Shows output that changes: in place in a terminal, and as new lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, TaskID


FOLLOW = "Follow the changes until Ctrl-C: in place in a terminal"


def in_terminal() -> bool:
    """Whether output can be redrawn in place."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in (None, "dumb")


def fitted(lines: Sequence[str], height: int) -> list[str]:
    """The first lines, as many as fit into the height, with the number of the others."""
    if len(lines) <= height:
        return list(lines)
    shown = max(height - 1, 0)
    return [*lines[:shown], f"... and {len(lines) - shown} more lines; `-o name` or a filter shows them"][:height]


class LiveLines:
    """Lines that replace the earlier ones in a terminal. Elsewhere they are printed after each change of `key`."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._key: Hashable = None

    def __enter__(self) -> Self:
        if in_terminal():
            from rich.live import Live

            self._live = Live(auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, lines: Sequence[str], key: Hashable) -> None:
        if self._live is not None:
            from rich.text import Text

            shown = fitted(lines, self._live.console.size.height - 1)
            self._live.update(Text.from_ansi("\n".join(shown), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif key != self._key:
            if self._key is not None:
                click.echo("")
            for line in lines:
                click.echo(line)
        self._key = key


class ProgressBar:
    """A bar with an estimate of the time left, below the lines of a command. Outside of a terminal only the lines."""

    def __init__(self, what: str, total: int, *, shown: bool = True) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._shown and in_terminal():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            self._progress = Progress(*columns, TextColumn("{task.fields[left]}"), transient=True)
            self._task = self._progress.add_task(self._what, total=self._total, left="")
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def echo(self, line: str) -> None:
        if self._progress is not None:
            self._progress.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line)

    def update(self, done: int, total: int, left_seconds: float | None = None) -> None:
        """`left_seconds` is the estimate; without one, it follows from the speed until now."""
        if self._progress is None or self._task is None:
            return
        self._progress.update(self._task, completed=done, total=total)
        if left_seconds is None:
            left_seconds = self._progress.tasks[0].time_remaining
        self._progress.update(self._task, left=time_left(left_seconds))


def time_left(seconds: float | None) -> str:
    """The estimate as text, rounded because it is one; empty without an estimate."""
    if seconds is None:
        return ""
    if seconds < 1:
        return "almost done"
    step = 1 if seconds < 10 else 5 if seconds < 60 else 30 if seconds < 600 else 300
    return f"about {_clock(timedelta(seconds=round(seconds / step) * step))} left"


def _clock(time: timedelta) -> str:
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    parts = (f"{minutes // 60} h" if minutes >= 60 else "", f"{minutes % 60} min" if minutes % 60 else "")
    return " ".join(part for part in (*parts, f"{seconds} s" if seconds and minutes < 10 else "") if part)
