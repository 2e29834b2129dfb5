"""Shows output that changes: in place in a terminal, and as new lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from poolhouse.cli.output import echo
from poolhouse.service.progress_bar import in_terminal
from poolhouse.service.terminal import escaped

if TYPE_CHECKING:
    from rich.live import Live


FOLLOW = "Follow the changes until Ctrl-C: in place in a terminal"


def fitted(lines: Sequence[str], height: int) -> list[str]:
    """The first lines, as many as fit into the height, with the number of the others."""
    if len(lines) <= height:
        return list(lines)
    shown = max(height - 1, 0)
    return [*lines[:shown], f"... and {len(lines) - shown} more lines; `-o name` or a filter shows them"][:height]


class _InPlace:
    """Output that is replaced in a terminal."""

    _live: Live | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()


class LiveLines(_InPlace):
    """Lines that replace the earlier ones in a terminal. Elsewhere they are printed after each change of `key`."""

    _key: Hashable = None

    def __enter__(self) -> Self:
        if in_terminal():
            from rich.live import Live

            self._live = Live(auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        return self

    def show(self, lines: Sequence[str], key: Hashable) -> None:
        if self._live is not None:
            from rich.text import Text

            shown = fitted([escaped(line, one_line=True) for line in lines], self._live.console.size.height - 1)
            self._live.update(Text.from_ansi("\n".join(shown), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif key != self._key:
            if self._key is not None:
                echo("")
            for line in lines:
                echo(line)
        self._key = key


class StatusLine(_InPlace):
    """A line on stderr that says what the command waits for. It replaces the earlier one in a terminal, and goes at the
    end. Elsewhere each other line is printed."""

    _shown = ""

    def __enter__(self) -> Self:
        if in_terminal(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def show(self, line: str) -> None:
        if line == self._shown:
            return
        self._shown = line
        if self._live is None:
            echo(line, err=True)
            return
        from rich.text import Text

        self._live.update(Text(escaped(line, one_line=True)), refresh=True)
