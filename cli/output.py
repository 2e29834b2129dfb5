"""How commands answer: in words or for programs, and how they exit (0 done, 1 refused, 2 usage, 3 unreachable)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import yaml

F = TypeVar("F", bound=Callable[..., Any])


class Failed(click.ClickException):
    """Refused, or tried and failed."""

    exit_code = 1


class Unreachable(click.ClickException):
    """No answer, or none in time; the outcome may be unknown."""

    exit_code = 3


STRUCTURED = ("json", "yaml")


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`, with `json` and `yaml` in every command; the first format is the default and the function's argument is
    `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(list(dict.fromkeys([*formats, *STRUCTURED]))),
        default=formats[0],
        show_default=True,
        help="How to print the answer.",
    )


def is_structured(output: str) -> bool:
    """Whether a program reads the answer."""
    return output in STRUCTURED


def print_structured(output: str, value: Any) -> None:
    """For programs, in one of the two structured formats."""
    if output == "yaml":
        plain = json.loads(json.dumps(value, default=str))
        click.echo(yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True), nl=False)
    else:
        print_json(value)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def print_result(output: str, said: str, **value: Any) -> None:
    """One sentence, or for programs the values with the sentence as `message`."""
    if is_structured(output):
        print_structured(output, {**value, "message": said})
    else:
        click.echo(said)


def count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
