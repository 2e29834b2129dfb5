"""Parameters of commands in the forms that kubectl takes: names of objects and durations."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import click
from click.shell_completion import CompletionItem

from poolhouse.api.kinds.resource_types import (
    CLAIMS,
    DATA_VOLUMES,
    OURS,
    POOLS,
    PVCS,
    VMIS,
    VMS,
    WARM_POOLS,
    ResourceType,
)

SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_DURATION = re.compile(f"(?:{_PARTS.pattern})+")


NAMED_KINDS = (*OURS, VMS, VMIS, DATA_VOLUMES, PVCS)
"""the kinds that commands print, in print order"""


def short_name(kind: str) -> str:
    """Returns the short name of a kind, such as `vpool`, or the kind in lower case."""
    return next((each.short_name for each in NAMED_KINDS if each.kind == kind), kind.lower())


def qualified_name(kind: str, name: str) -> str:
    """Returns a name as `kubectl get -o name` prints it, such as `virtualmachinepool.kubevirt.io/web`."""
    group = next((f".{each.group}" for each in NAMED_KINDS if each.kind == kind and each.group), "")
    return f"{kind.lower()}{group}/{name}"


def parse_name(text: str, *kinds: str) -> tuple[str, str]:
    """Returns kind and name of NAME or KIND/NAME. NAME alone has the first kind. Raises `UsageError`."""
    prefix, _, name = text.rpartition("/")
    kind = next((each for each in kinds if prefix.partition(".")[0].lower() in spellings(each)), None)
    if not name or ("/" in text and kind is None):
        forms = ", ".join(f"{short_name(each)}/NAME" for each in kinds)
        raise click.UsageError(f"{text!r} is invalid: give NAME, {forms}")
    return kind or kinds[0], name


def spellings(kind: str) -> tuple[str, ...]:
    short, long = short_name(kind), kind.lower()
    known = next((each.short_names for each in NAMED_KINDS if each.kind == kind), ())
    return tuple(dict.fromkeys((short, f"{short}s", *known, long, f"{long}s")))


class NameType(click.ParamType[str]):
    """Accepts NAME or KIND/NAME of a single kind, and returns the name. Shells complete the names of the cluster."""

    name = "name"

    def __init__(self, kind: ResourceType) -> None:
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return parse_name(value, self._kind.kind)[1]
        except click.UsageError as error:
            self.fail(error.message, param, context)

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from poolhouse.cli.completion import complete_names

        return complete_names(self._kind.plural)(context, param, incomplete)


POOL, VM, WARM_POOL, CLAIM = map(NameType, (POOLS, VMS, WARM_POOLS, CLAIMS))


class Duration(click.ParamType[float]):
    """Accepts `30s`, `1m30s`, `2h` or a number of seconds, and returns seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        text = str(value)
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        if not _DURATION.fullmatch(text):
            self.fail(f"{value!r} is not a duration; write it as 10s, 1m30s or 2h", param, context)
        return sum(float(number) * SECONDS[unit] for number, unit in _PARTS.findall(text))


class WaitingCommand(click.Command):
    """A command with `--wait` and `--timeout`. Users of kubectl guess that `--wait 60s` sets the time."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        for argument, following in pairwise([*arguments, ""]):
            value = following if argument == "--wait" else argument.removeprefix("--wait=")
            if argument.startswith("--wait") and _DURATION.fullmatch(value):
                raise click.UsageError(f"--wait takes no time; --timeout {value} limits the wait", context)
        return super().parse_args(context, arguments)
