"""Lists of things, printed as kubectl prints them: `-o wide|name|json|yaml`, and columns as wide as what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from cli.output import is_structured, output_option, print_structured

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

NONE = "-"


@dataclass(frozen=True)
class Column:
    title: str
    of: Callable[[Json], Any]
    wide: bool = False
    colour: Callable[[Json], str | None] = lambda row: None


def field(title: str, key: str, *, wide: bool = False) -> Column:
    return Column(title, lambda row: row.get(key), wide)


NAMESPACE = field("NAMESPACE", "namespace")


@dataclass(frozen=True)
class Listing:
    """What a command lists. It takes `-o wide` where it has a column for wide lines only, and `-o name` where its rows
    are objects of the cluster."""

    columns: Sequence[Column]
    name: Callable[[Json], str] | None = None
    """what kubectl would take for the row, as `kind.group/name`"""

    def option(self, command: F) -> F:
        """`-o` of the command, with the formats that these rows have."""
        wide = ("wide",) if any(each.wide for each in self.columns) else ()
        return output_option("text", *wide, *(("name",) if self.name else ()))(command)

    def show(
        self, output: str, rows: Sequence[Json], *, nothing: str, everywhere: bool = False, whole: Any = None
    ) -> None:
        """Rows in the format that was asked for. `nothing` is the sentence for people where there is no row, which
        goes where it is no answer; `whole` what programs get where that is more than the rows."""
        if is_structured(output):
            print_structured(output, list(rows) if whole is None else whole)
        elif not rows:
            click.echo(nothing, err=True)
        else:
            for line in self.lines(output, rows, everywhere=everywhere):
                click.echo(line)

    def lines(self, output: str, rows: Sequence[Json], *, everywhere: bool = False) -> Iterator[str]:
        """Of one of the formats for people: names, each once, or a table."""
        if output == "name" and self.name:
            yield from dict.fromkeys(map(self.name, rows))
            return
        shown = [each for each in self.columns if output == "wide" or not each.wide]
        yield from format_rows(rows, [NAMESPACE, *shown] if everywhere else shown)


def format_rows(rows: Sequence[Json], columns: Sequence[Column]) -> Iterator[str]:
    """A head and a line for each row; colours reach a terminal only."""
    cells = [[_cell(each.of(row)) for each in columns] for row in rows]
    yield from align_columns(
        [[each.title for each in columns], *cells], [None, *([c.colour(row) for c in columns] for row in rows)]
    )


def align_columns(
    table: Sequence[Sequence[str]], colours: Sequence[Sequence[str | None] | None] | None = None
) -> Iterator[str]:
    """Lines of which each cell begins below the one above it."""
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    for row, painted in zip(table, colours or [None] * len(table), strict=True):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        paint = painted or [None] * len(row)
        yield "   ".join(
            click.style(cell, fg=colour) if colour else cell for cell, colour in zip(padded, paint, strict=True)
        ).rstrip()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
