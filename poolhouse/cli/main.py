"""The command `poolhouse`, which is also kubectl's plugin `kubectl poolhouse`.

A command's module is imported only when the command runs, because each image lacks some packages. For example, the
defaulter's image has no Kubernetes client.
"""

import errno
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import click

from poolhouse.cli.output import STRUCTURED, Failed, echo_block, print_structured
from poolhouse.service import logs


@dataclass(frozen=True)
class CommandEntry:
    target: str
    """`module:attribute` of a click command, or of a service's function that returns an exit code"""
    help: str
    kind: Literal["command", "hidden command", "service", "hidden service"] = "command"


COMMANDS = {
    "up": CommandEntry(
        "poolhouse.cli.up:up", "Start the embedded stack: control plane, services and the engine that runs VMs."
    ),
    "down": CommandEntry("poolhouse.cli.up:down", "Stop the embedded stack; the next `up` continues with its state."),
    "status": CommandEntry(
        "poolhouse.cli.up:status", "Show the embedded stack of `up`; for a cluster, use `overview`."
    ),
    "default": CommandEntry(
        "poolhouse.cli.default:default", "Set the defaults of VMs as admission does, without a cluster."
    ),
    "plan": CommandEntry("poolhouse.cli.plan:plan", "Simulate a change of a pool, and print the actions on each VM."),
    "overview": CommandEntry(
        "poolhouse.cli.overview:overview", "Show all objects of Poolhouse in a namespace, with their health."
    ),
    "tree": CommandEntry("poolhouse.cli.tree:tree", "Show the owners of a VM, and the objects that it owns."),
    "why": CommandEntry("poolhouse.cli.why:why", "Explain past and next actions on a VM of a pool."),
    "rollout": CommandEntry("poolhouse.cli.rollout:rollout", "Follow, pause, resume and undo updates of a pool."),
    "lifecycle": CommandEntry("poolhouse.cli.lifecycle:lifecycle", "List held VMs, and end lifecycle hooks."),
    "detach": CommandEntry("poolhouse.cli.detach:detach", "Remove a VM from its pool, for example to debug it."),
    "attach": CommandEntry("poolhouse.cli.detach:attach", "Put a VM back into a pool."),
    "import": CommandEntry("poolhouse.cli.import_pool:import_", "Import pools of KubeVirt."),
    "disks": CommandEntry("poolhouse.cli.disks:disks", "List retained disks."),
    "console": CommandEntry("poolhouse.console.command:console", "Serve a web page on this machine for all of this."),
    "policy": CommandEntry(
        "poolhouse.cli.policy:policy", "Explain which migration policy a VM uses, and simulate changes."
    ),
    "claim": CommandEntry("poolhouse.cli.claims:claim", "Claim a warm VM, list and extend claims, connect to a VM."),
    "ssh": CommandEntry("poolhouse.cli.claim:log_in", "Log in to the VM of a claim, or run a command in it."),
    "release": CommandEntry("poolhouse.cli.release:release", "Release claims and their VMs."),
    "warmpool": CommandEntry(
        "poolhouse.cli.warmpool:warmpool", "Inspect warm pools, and import pools of a Virtual Kubelet."
    ),
    "hardware": CommandEntry(
        "poolhouse.cli.hardware:hardware", "Print the devices of a VM, and compare versions of QEMU."
    ),
    "hook": CommandEntry("poolhouse.cli.hook:hook", "Print manifests that restore recorded hardware."),
    "crds": CommandEntry("poolhouse.cli.crds:crds", "Print the CustomResourceDefinitions of Poolhouse."),
    "doctor": CommandEntry(
        "poolhouse.cli.doctor:doctor", "Check whether Poolhouse itself works, and say what to do if it does not."
    ),
    "api-docs": CommandEntry(
        "poolhouse.cli.api_docs:api_docs", "Open the page that describes the HTTP API of a service."
    ),
    "conformance": CommandEntry(
        "poolhouse.cli.conformance:conformance", "Check that a cluster's KubeVirt behaves as Poolhouse expects."
    ),
    "support-bundle": CommandEntry(
        "poolhouse.cli.support_bundle:support_bundle", "Collect objects, events and logs for support."
    ),
    "completion": CommandEntry("poolhouse.cli.completion:completion", "Print the completion script for a shell."),
    "cluster-autoscaler-provider": CommandEntry(
        "poolhouse.nodegroups.command:provider", "Serve pools to the Kubernetes cluster-autoscaler as node groups."
    ),
    "webhook": CommandEntry("webhook.main:main", "Run the admission service.", "service"),
    "defaulter": CommandEntry("defaulter.main:main", "Run the service that asks libvirt for defaults.", "service"),
    "controllers": CommandEntry("controllers.main:main", "Run the controllers.", "service"),
    "portal": CommandEntry(
        "poolhouse.portal.main:main", "Run the page of users without a kubeconfig.", "hidden service"
    ),
    "hooks": CommandEntry("webhook.hooks:hooks", "Run a hook of the Helm chart.", "hidden command"),
    "engine": CommandEntry(
        "poolhouse.stack.engine.main:main", "Run the engine in place of KubeVirt and CDI.", "hidden service"
    ),
}


OPTIONS = {"help": "--help", "version": "--version"}
"""options that are commands in kubectl"""


class LazyGroup(click.Group):
    """A group that imports a command only to run it or to print its help."""

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

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        commands = [each for each in arguments if each in COMMANDS]
        try:
            return super().parse_args(context, arguments)
        except click.NoSuchOption as error:
            if not commands:
                raise
            first = f"{context.command_path} {commands[0]} {error.option_name} ..."
            raise click.UsageError(f"{error.message} Give the command first: {first}", context) from None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError as error:
            from difflib import get_close_matches

            meant = OPTIONS.get(arguments[0]) or next(
                iter(get_close_matches(arguments[0], self.list_commands(context), 1)), None
            )
            if meant is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{meant}'?", context) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(context)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="poolhouse")
def poolhouse() -> None:
    """VM pools, hardware defaults, migration policies and warm VMs for KubeVirt."""


INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 success, 1 refused or failed, 2 usage, 3 unreachable or timeout, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.escape_unconfigured()
    try:
        # Output that is not a terminal never has colours.
        colour = False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None
        code = poolhouse.main(arguments, prog_name=program_name(sys.argv[0]), standalone_mode=False, color=colour)
    except click.ClickException as error:
        show(error)
        if not getattr(error, "shown", False) and (output := _structured(arguments)):
            print_structured(output, {"error": error.format_message()})
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except click.Abort as error:  # click raises it for Ctrl-C too
        code = INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            show(Failed(f"the output cannot be written: {error.strerror}"))
        else:  # a bug, whose traceback may have texts of the cluster in it
            echo_block("".join(traceback.format_exception(error)), err=True, nl=False)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def show(error: click.ClickException) -> None:
    """Prints the error to stderr. Errors of click contain words of the command line."""
    with StringIO() as text:
        error.show(text)
        echo_block(text.getvalue(), err=True, nl=False)


def program_name(program: str) -> str:
    """Returns the program's name for usage messages."""
    return "kubectl poolhouse" if Path(program).name.startswith("kubectl-") else "poolhouse"


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(sys.modules.get(module) or _imported(module), attribute)
    except ModuleNotFoundError as missing:
        # The images and the krew plugin contain only the packages of their own commands.
        raise Failed(f"this installation does not include the command: {missing.name} is not installed") from None


def _imported(module: str) -> ModuleType:
    """Imports a module without the garbage collector, which would look again and again at modules and classes that all
    stay: that is a quarter of the start of a service."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _structured(arguments: Sequence[str]) -> str | None:
    """Returns the structured format of `-o` in arguments that click could not parse; None without one."""
    for argument, following in pairwise([*arguments, ""]):
        value = following if argument in ("-o", "--output") else argument.removeprefix("--output=").removeprefix("-o")
        if value in STRUCTURED and (argument in ("-o", "--output") or value != argument):
            return value
    return None


if __name__ == "__main__":
    main()
