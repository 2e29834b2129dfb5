"""Prints the results of commands as text, tables, JSON or YAML, and defines the exit codes of failures."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import yaml

from apimachinery.unstructured import Json

F = TypeVar("F", bound=Callable[..., Any])

STRUCTURED = ("json", "yaml")
NONE = "-"


class CommandError(click.ClickException):
    """An error that ends the command with an exit code."""

    def __init__(self, message: str, *, shown: bool = False) -> None:
        """`shown`: the command has printed its result, so that `-o json` does not print the error as a document too."""
        super().__init__(message)
        self.shown = shown


class Failed(CommandError):
    """The request was refused or has failed."""

    exit_code = 1


class Unreachable(CommandError):
    """No answer arrived in time. The outcome may be unknown."""

    exit_code = 3


def output_option(*formats: str) -> Callable[[F], F]:
    """Adds `-o`, with `json` and `yaml` for every command. The first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(list(dict.fromkeys([*formats, *STRUCTURED]))),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


def is_structured(output: str) -> bool:
    return output in STRUCTURED


def print_structured(output: str, value: Any) -> None:
    if output == "yaml":
        plain = json.loads(json.dumps(value, default=str))
        click.echo(yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True), nl=False)
    else:
        print_json(value)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def print_result(output: str, message: str, **value: Any) -> None:
    """Prints the message. In JSON and YAML, prints the values and the message."""
    if is_structured(output):
        print_structured(output, {**value, "message": message})
    else:
        click.echo(message)


@dataclass(frozen=True)
class Column:
    title: str
    value: Callable[[Json], Any]
    wide: bool = False
    colour: Callable[[Json], str | None] = lambda row: None


def field(title: str, key: str, *, wide: bool = False) -> Column:
    return Column(title, lambda row: row.get(key), wide)


NAMESPACE = field("NAMESPACE", "namespace")


@dataclass(frozen=True)
class Listing:
    """The table of a command. It supports `-o wide` if a column is wide, and `-o name` if its rows are objects."""

    columns: Sequence[Column]
    name: Callable[[Json], str] | None = None
    """returns the row's name in kubectl's form `kind.group/name`"""

    def option(self, command: F) -> F:
        """Adds `-o` with the formats of this table."""
        wide = ("wide",) if any(column.wide for column in self.columns) else ()
        return output_option("text", *wide, *(("name",) if self.name else ()))(command)

    def show(
        self, output: str, rows: Sequence[Json], *, nothing: str, everywhere: bool = False, whole: Any = None
    ) -> None:
        """Prints the rows. Without rows, text formats print the sentence `nothing` to stderr. JSON and YAML print
        `whole` instead of the rows if it is given."""
        if is_structured(output):
            print_structured(output, list(rows) if whole is None else whole)
        elif not rows:
            click.echo(nothing, err=True)
        else:
            for line in self.lines(output, rows, everywhere=everywhere):
                click.echo(line)

    def lines(self, output: str, rows: Sequence[Json], *, everywhere: bool = False) -> Iterator[str]:
        """Yields the lines of a text format: the names without duplicates, or a table."""
        if output == "name" and self.name:
            yield from dict.fromkeys(map(self.name, rows))
            return
        columns = [column for column in self.columns if output == "wide" or not column.wide]
        if everywhere:
            columns.insert(0, NAMESPACE)
        cells = [[_cell(column.value(row)) for column in columns] for row in rows]
        colours = [None, *([column.colour(row) for column in columns] for row in rows)]
        yield from align_columns([[column.title for column in columns], *cells], colours)


def align_columns(
    table: Sequence[Sequence[str]], colours: Sequence[Sequence[str | None] | None] | None = None
) -> Iterator[str]:
    """Yields lines with cells padded to the width of their column. Colours appear only in terminals."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row, row_colours in zip(table, colours or [None] * len(table), strict=True):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        pairs = zip(padded, row_colours or [None] * len(row), strict=True)
        yield "   ".join(click.style(cell, fg=colour) if colour else cell for cell, colour in pairs).rstrip()


def _cell(value: Any) -> str:
    if value is None or value == "":
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
