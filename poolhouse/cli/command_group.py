"""Groups of commands. Their help has the whole first sentence of each command, and some have a default command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

WHOLE_SENTENCE = 1000
"""characters of a command's first sentence; click would cut it at the width of the terminal"""


class CommandGroup(click.Group):
    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(WHOLE_SENTENCE)) for name, each in self.commands.items()]
            )


class DefaultCommandGroup(CommandGroup):
    """A group that runs its command `default` if the first argument is not the name of a command. For example,
    `poolhouse claim NAME` is short for `poolhouse claim create NAME`."""

    def __init__(
        self, *arguments: Any, default: str, elsewhere: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        """`elsewhere`: words that users take for commands of the group, with the commands that they mean."""
        super().__init__(*arguments, **settings)
        self.default = default
        self._elsewhere = elsewhere or {}

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        shows_help = not arguments and self.no_args_is_help
        if not shows_help and (not arguments or arguments[0] not in {*self.commands, *context.help_option_names}):
            if arguments and arguments[0].startswith("-") and (late := [a for a in arguments if a in self.commands]):
                raise click.UsageError(f"give the command first: {context.command_path} {late[0]} ...", context)
            word = self._first_name(context, arguments)
            if meant := self._meant(context, word):
                hint = f"Did you mean '{meant}'? If it is a name, write '{context.command_path} {self.default} {word}'"
                raise click.UsageError(f"'{word}' is no command. {hint}", context)
            arguments = [self.default, *arguments]
        return super().parse_args(context, arguments)

    def _first_name(self, context: click.Context, arguments: list[str]) -> str:
        """The first argument that is neither an option nor its value, as the default command reads them."""
        command = self.commands[self.default]
        reading = click.Context(command, parent=context, info_name=self.default, resilient_parsing=True)
        values, _, _ = command.make_parser(reading).parse_args(list(arguments))
        named = (values.get(each.name or "") for each in command.params if isinstance(each, click.Argument))
        return next((each for each in named if isinstance(each, str)), "")

    def _meant(self, context: click.Context, word: str) -> str | None:
        """The command that the user likely means by the word."""
        if word in self._elsewhere:
            return f"{context.find_root().command_path} {self._elsewhere[word]}"
        near = misspelt(word, self.commands)
        return f"{context.command_path} {near}" if near else None


def misspelt(word: str, commands: Iterable[str]) -> str | None:
    """The command that lacks up to two letters in the word, has some in addition, or has them in another order. Words
    with another letter, such as `lint`, and with digits or dashes are more likely names of objects."""
    return next((each for each in commands if word != each and word.isalpha() and _is_near(word, each)), None)


def _is_near(word: str, command: str) -> bool:
    short, long = sorted((word, command), key=len)
    if len(short) == len(long):
        return sorted(short) == sorted(long)
    letters = iter(long)
    return len(short) > 1 and len(long) - len(short) <= 2 and all(each in letters for each in short)
