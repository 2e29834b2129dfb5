"""`poolhouse`, also found by kubectl as `kubectl poolhouse`.

The table below is all that is loaded before a command is chosen: the defaulter's image has no Kubernetes client and
the webhook's no libvirt, so no command may import what another needs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import click

from cli.output import STRUCTURED, Failed, print_structured


@dataclass(frozen=True)
class CommandEntry:
    target: str
    """module:attribute, a click command or, for a service, a function that returns an exit code"""
    help: str
    kind: Literal["command", "hidden command", "service", "hidden service"] = "command"


COMMANDS = {
    "up": CommandEntry("cli.up:up", "Start the embedded stack: control plane, services and the engine that runs VMs."),
    "down": CommandEntry("cli.up:down", "End the embedded stack; its state stays for the next `up`."),
    "status": CommandEntry("cli.up:status", "Say which parts of the embedded stack run, and how to reach them."),
    "default": CommandEntry("cli.default:default", "Populate a VM as admission would, with no cluster at all."),
    "plan": CommandEntry("cli.plan:plan", "Print what a change of a pool would do to which VM, without doing it."),
    "overview": CommandEntry(
        "cli.overview:overview", "Show everything of ours in a namespace, and what is wrong with it."
    ),
    "tree": CommandEntry("cli.tree:tree", "Show whose a VM is, and what is its own."),
    "why": CommandEntry("cli.why:why", "Say what was and will be done to a VM of a pool, and why."),
    "rollout": CommandEntry("cli.rollout:rollout", "Follow, pause, resume and undo the changes of a pool."),
    "detach": CommandEntry("cli.detach:detach", "Take a VM out of its pool, to look at it in peace."),
    "attach": CommandEntry("cli.detach:attach", "Put a VM back into a pool."),
    "disks": CommandEntry("cli.disks:disks", "List the disks that scale-in has kept."),
    "policy": CommandEntry(
        "cli.policy:policy", "Ask which migration policy a VM obeys and why, and what a change would do."
    ),
    "claim": CommandEntry("cli.claim:claim", "Take a VM that is ready, or have one made."),
    "release": CommandEntry("cli.claim:release", "Give a claimed VM back."),
    "warmpool": CommandEntry("cli.warmpool:warmpool", "Look after warm pools, and make them of a Virtual Kubelet's."),
    "hardware": CommandEntry("cli.hardware:hardware", "Print a VM's devices, and what another QEMU would move."),
    "hook": CommandEntry("cli.hook:hook", "Print the hook that gives recorded hardware back on a cluster."),
    "crds": CommandEntry("cli.crds:crds", "Print the CustomResourceDefinitions of every kind of ours."),
    "support-bundle": CommandEntry(
        "cli.support_bundle:support_bundle", "Collect what is needed to find out what is wrong."
    ),
    "completion": CommandEntry("cli.completion:completion", "Print the script that completes this command in a shell."),
    "webhook": CommandEntry("webhook.main:main", "Run the admission service.", "service"),
    "defaulter": CommandEntry("defaulter.main:main", "Run the service that asks libvirt for hardware.", "service"),
    "controllers": CommandEntry("controllers.main:main", "Run the controllers.", "service"),
    "hooks": CommandEntry("webhook.hooks:hooks", "What the Helm chart's hooks run.", "hidden command"),
    "engine": CommandEntry("local.engine.main:main", "Run the stand-in for KubeVirt and CDI.", "hidden service"),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is run or its own help is asked for, and no sooner."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if not entry.kind.startswith("hidden")]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        if entry.kind.endswith("service"):
            return click.Command(name, callback=lambda: sys.exit(_load(entry.target)()), help=entry.help)
        command: click.Command = _load(entry.target)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(arguments[0], self.list_commands(context), 1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", context) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(context)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="poolhouse")
def poolhouse() -> None:
    """Pools of VMs, decided hardware, known migration policies and warm VMs for KubeVirt."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 refused or failed, 2 usage, 3 unreachable or timeout."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        # What is no terminal gets no colours in any case.
        colour = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
        code = poolhouse.main(arguments, prog_name=program_name(sys.argv[0]), standalone_mode=False, color=colour)
    except click.ClickException as error:
        error.show()
        if output := _structured(arguments):
            print_structured(output, {"error": error.format_message()})
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def program_name(program: str) -> str:
    """What people type to call it: kubectl finds its plugins by their files' names."""
    return "kubectl poolhouse" if Path(program).name.startswith("kubectl-") else "poolhouse"


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as missing:
        # An image, and the plugin that krew installs, have what their own commands need.
        raise Failed(f"this is not part of this installation, which has no {missing.name}") from None


def _structured(arguments: Sequence[str]) -> str | None:
    """The format that a program asked for, also where the command was not understood."""
    for argument, following in pairwise([*arguments, ""]):
        asked = following if argument in ("-o", "--output") else argument.removeprefix("--output=").removeprefix("-o")
        if asked in STRUCTURED and (argument in ("-o", "--output") or asked != argument):
            return asked
    return None


if __name__ == "__main__":
    main()
