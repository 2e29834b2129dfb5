"""Completion: a script for a person's shell, and the answers that kubectl asks a plugin for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

VARIABLE = "_POOLHOUSE_COMPLETE"

# What cobra, and with it kubectl, takes as the last line of an answer.
NO_FILES = ":4"
FILES = ":0"
DIRECTORIES = ":16"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that has SHELL complete `poolhouse`.

    For bash: `. <(poolhouse completion bash)`. As `kubectl poolhouse`, kubectl's own completion completes it: it
    asks `kubectl_complete-poolhouse`, which is beside the plugin.
    """
    from cli.main import poolhouse

    made = get_completion_class(shell)
    assert made is not None  # every choice above is one of click's own
    click.echo(made(poolhouse, {}, "poolhouse", VARIABLE).source())


def kubectl_answers(words: Sequence[str]) -> Iterator[str]:
    """Lines for kubectl: what could stand in the place of the last word, each with its help, and then whether files
    could stand there too."""
    from cli.main import poolhouse

    *given, incomplete = words or ("",)
    found = ShellComplete(poolhouse, {}, "kubectl poolhouse", VARIABLE).get_completions(list(given), incomplete)
    yield from (_line(item) for item in found if item.type == "plain")
    kinds = {item.type for item in found}
    yield FILES if "file" in kinds else DIRECTORIES if "dir" in kinds else NO_FILES


def _line(item: CompletionItem) -> str:
    told = " ".join(str(item.help).split()) if item.help else ""
    return f"{item.value}\t{told}" if told else str(item.value)


def main() -> None:
    """`kubectl_complete-poolhouse`, run by kubectl with the words behind `kubectl poolhouse`."""
    for line in kubectl_answers(sys.argv[1:]):
        click.echo(line)
