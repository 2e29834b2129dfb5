"""A progress bar with an estimate of the time left, for commands that take long."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from poolhouse.service.terminal import escaped

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def in_terminal(stream: TextIO | None = None) -> bool:
    """Whether the output to the stream, by default to stdout, can be redrawn in place."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") not in (None, "dumb")


class ProgressBar:
    """A bar with an estimate of the time left, below the lines of a command. Outside of a terminal only the lines."""

    def __init__(self, what: str, total: int | None, *, shown: bool = True) -> None:
        """`total` is None until it is known."""
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
        self.stop()

    def stop(self) -> None:
        """Removes the bar. Later lines are printed as outside of a terminal."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @property
    def visible(self) -> bool:
        return self._progress is not None

    def echo(self, line: str) -> None:
        if self._progress is not None:
            self._progress.console.print(
                escaped(line, one_line=True), markup=False, emoji=False, highlight=False, soft_wrap=True
            )
        else:
            print(escaped(line, one_line=True), flush=True)

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
    if not seconds:
        return ""
    if seconds < 1:
        return "almost done"
    step = 1 if seconds < 10 else 5 if seconds < 60 else 30 if seconds < 600 else 300
    return f"about {_clock(timedelta(seconds=round(seconds / step) * step))} left"


def _clock(time: timedelta) -> str:
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    parts = (f"{minutes // 60} h" if minutes >= 60 else "", f"{minutes % 60} min" if minutes % 60 else "")
    return " ".join(part for part in (*parts, f"{seconds} s" if seconds and minutes < 10 else "") if part)
