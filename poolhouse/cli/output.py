"""Prints the results of commands as text, tables, JSON or YAML, and defines the exit codes of failures."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeVar

import click
import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.terminal import Styled, escaped, has_controls

F = TypeVar("F", bound=Callable[..., Any])

STRUCTURED = ("json", "yaml")
NONE = "-"


def install_extra(extras: str) -> str:
    """What a message says about missing packages. No package index has Poolhouse, and a name there may be anybody's."""
    return f"run pip install '.[{extras}]' in a checkout of Poolhouse"


def echo(line: str = "", *, err: bool = False) -> None:
    """Prints one line. All commands print by this function or by `echo_block`, because texts of the cluster may contain
    control characters that a terminal would obey, and line feeds that would look like lines of the command."""
    click.echo(escaped(line, one_line=True), err=err)


def echo_block(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints lines. A text of the cluster must not be a part of them, unless it is quoted as in YAML and JSON."""
    click.echo(escaped(text), err=err, nl=nl)


def style(text: str, colour: str) -> Styled:
    """Escapes the text and gives it a colour. Colours appear only in terminals."""
    return Styled(click.style(escaped(text, one_line=True), fg=colour))


def confirm(question: str) -> None:
    """Asks the user on stderr, and ends the command without a yes."""
    click.confirm(escaped(question, one_line=True), abort=True, err=True)


class CommandError(click.ClickException):
    """An error that ends the command with an exit code."""

    def __init__(self, message: str, *, shown: bool = False) -> None:
        """`shown`: the command has printed its result, so that `-o json` does not print the error as a document too."""
        super().__init__(message)
        self.shown = shown

    def show(self, file: IO[Any] | None = None) -> None:
        # The lines of a message are indented, because a message of the cluster must not look like lines of the command.
        lines = self.message.replace("\n", "\n  ")
        click.echo(escaped(f"Error: {lines}"), file=file, err=file is None)


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
        echo_block(yaml_text(json.loads(json.dumps(value, default=str))), nl=False)
    else:
        print_json(value)


def print_json(value: Any) -> None:
    # JSON need not escape this one control character.
    echo_block(json.dumps(value, indent=2, default=str).replace("\x7f", "\\u007f"))


def yaml_text(value: Any) -> str:
    """Returns YAML that a reader takes for the same value, without control characters."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True))


class _Dumper(yaml.SafeDumper):
    """Writes strings with control characters in ASCII with quotes. The emitter alone writes some of them as they are,
    such as U+202E, which changes the direction of the text after it."""

    def choose_scalar_style(self) -> str:
        return '"' if has_controls(getattr(self.event, "value", "")) else str(super().choose_scalar_style())

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        self.allow_unicode = not has_controls(text)
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def print_result(output: str, message: str, **value: Any) -> None:
    """Prints the message. In JSON and YAML, prints the values and the message."""
    if is_structured(output):
        print_structured(output, {**value, "message": message})
    else:
        echo(message)


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
            echo(nothing, err=True)
        else:
            for line in self.lines(output, rows, everywhere=everywhere):
                echo(line)

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
) -> Iterator[Styled]:
    """Yields lines with cells padded to the width of their column. Colours appear only in terminals."""
    table = [[escaped(cell, one_line=True) for cell in row] for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row, row_colours in zip(table, colours or [None] * len(table), strict=True):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        pairs = zip(padded, row_colours or [None] * len(row), strict=True)
        yield Styled("   ".join(style(cell, colour) if colour else cell for cell, colour in pairs).rstrip())


def _cell(value: Any) -> str:
    if value is None or value == "":
        return NONE
    return str(value).lower() if isinstance(value, bool) else str(value)
