"""Groups of commands with a default: `poolhouse claim NAME` is short for `poolhouse claim create NAME`."""

from __future__ import annotations

from typing import Any

import click


class DefaultCommandGroup(click.Group):
    """A group that runs its command `default` if the first argument is not the name of a command."""

    def __init__(self, *arguments: Any, default: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.default = default

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        shows_help = not arguments and self.no_args_is_help
        if not shows_help and (not arguments or arguments[0] not in {*self.commands, *context.help_option_names}):
            if arguments and arguments[0].startswith("-") and (late := [a for a in arguments if a in self.commands]):
                raise click.UsageError(f"give the command first: {context.command_path} {late[0]} ...", context)
            arguments = [self.default, *arguments]
        return super().parse_args(context, arguments)
