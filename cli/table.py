"""Lists of things, printed as kubectl prints them: `-o wide|name|json|yaml`, and columns as wide as what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from cli.output import output_option, print_as, structured

Json = dict[str, Any]

listing_option = output_option("text", "wide", "name")
"""`-o` of a command that lists"""

NONE = "-"


@dataclass(frozen=True)
class Column:
    title: str
    of: Callable[[Json], Any]
    wide: bool = False
    colour: Callable[[Json], str | None] = lambda row: None


def field(title: str, key: str, *, wide: bool = False) -> Column:
    return Column(title, lambda row: row.get(key), wide)


def print_rows(
    output: str, rows: Sequence[Json], columns: Sequence[Column], *, name: Callable[[Json], str], nothing: str
) -> None:
    """Rows in the format that was asked for. `name` is what kubectl would take for the row, as `kind/name`; `nothing`
    the sentence for people where there is no row, which goes where it is no answer."""
    if structured(output):
        print_as(output, list(rows))
    elif output == "name":
        for row in rows:
            click.echo(name(row))
    elif not rows:
        click.echo(nothing, err=True)
    else:
        for line in lines(rows, [each for each in columns if output == "wide" or not each.wide]):
            click.echo(line)


def lines(rows: Sequence[Json], columns: Sequence[Column]) -> Iterator[str]:
    """A head and a line for each row; colours reach a terminal only."""
    cells = [[_cell(each.of(row)) for each in columns] for row in rows]
    yield from align(
        [[each.title for each in columns], *cells], [None, *([c.colour(row) for c in columns] for row in rows)]
    )


def align(
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
