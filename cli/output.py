"""How commands answer: text or JSON, and the four exit codes (0 done, 1 refused or failed, 2 usage, 3 unreachable)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Failed(click.ClickException):
    """Refused, or tried and failed."""

    exit_code = 1


class Unreachable(click.ClickException):
    """No answer, or none in time; the outcome may be unknown."""

    exit_code = 3


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`, with `json` in every command; the first format is the default and the function's argument is `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([*formats, *([] if "json" in formats else ["json"])]),
        default=formats[0],
        show_default=True,
        help="How to print the answer.",
    )


def print_json(answer: Any) -> None:
    click.echo(json.dumps(answer, indent=2, default=str))


def answer(output: str, said: str, **value: Any) -> None:
    """One sentence, or as JSON the values with the sentence as `message`."""
    if output == "json":
        print_json({**value, "message": said})
    else:
        click.echo(said)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
