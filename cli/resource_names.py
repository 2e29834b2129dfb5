"""Names of objects: as people write them, as kubectl prints them, and what a shell is offered to complete one.

Whoever presses Tab waits for it and wants no message: an answer that is late or is none offers nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from cli import kubeconfig as files

if TYPE_CHECKING:
    from cli.cluster import Cluster
    from kinds.kind import Kind, ResourceType
    from runtime.api import Api
    from runtime.resource import Resource

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

SECONDS = 2.0
MOST = 500


@cache
def named_kinds() -> tuple[Kind | ResourceType, ...]:
    """The kinds that commands print, in the order of their lists. The import is late because it takes 0.3 s."""
    from kinds import KINDS, kubevirt
    from kinds.kind import ResourceType

    pvcs = ResourceType("", ("v1",), "persistentvolumeclaims", "PersistentVolumeClaim", short_name="pvc")
    return (*KINDS, kubevirt.VM, kubevirt.VMI, kubevirt.DATA_VOLUME, pvcs)


def short_name(kind: str) -> str:
    """`vmpool` for VirtualMachinePool; the kind in lower case where it has no short name."""
    return next((each.short_name for each in named_kinds() if each.kind == kind), kind.lower())


def qualified_name(kind: str, name: str) -> str:
    """An object as kubectl takes it, and prints it with `-o name`."""
    group = next((f".{each.group}" for each in named_kinds() if each.kind == kind and each.group), "")
    return f"{kind.lower()}{group}/{name}"


def parse_name(text: str, *kinds: str) -> tuple[str, str]:
    """Kind and name of NAME or KIND/NAME, where the kind is written as kubectl takes it. A bare name is of the first
    kind. Raises `UsageError`."""
    prefix, _, name = text.rpartition("/")
    kind = next((each for each in kinds if prefix.partition(".")[0].lower() in _spellings(each)), None)
    if not name or (prefix and kind is None):
        forms = ", ".join(f"{short_name(each)}/NAME" for each in kinds)
        raise click.UsageError(f"{text!r} is none of NAME, {forms}")
    return kind or kinds[0], name


def _spellings(kind: str) -> tuple[str, ...]:
    short, long = short_name(kind), kind.lower()
    return short, f"{short}s", long, f"{long}s"


class NameType(click.ParamType[str]):
    """NAME or KIND/NAME of one kind, taken as the name."""

    name = "name"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        try:
            return parse_name(value, self._kind)[1]
        except click.UsageError as error:
            self.fail(error.message, param, context)


POOL, VM, WARM_POOL, CLAIM = map(
    NameType, ("VirtualMachinePool", "VirtualMachine", "VirtualMachineWarmPool", "VirtualMachineClaim")
)


def complete_names(*plurals: str, prefixes: Callable[[], Iterable[Kind]] = tuple, **kinds: str) -> Complete:
    """Completes with the names of these resources in the given namespace. Behind `KIND/` it completes with the names of
    the resource that `kinds` has for it, or of the kind among `prefixes` with this short name."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kind, slash, start = incomplete.rpartition("/")
        try:
            found = _listed(context.params, wanted) if (wanted := _wanted(kind)) else []
        except Exception:  # no cluster, no rights, no time: there is nobody to tell
            return []
        return [CompletionItem(f"{kind}{slash}{each}") for each in dict.fromkeys(found) if each.startswith(start)]

    def _wanted(kind: str) -> tuple[str, ...]:
        if not kind:
            return plurals
        return (kinds[kind],) if kind in kinds else tuple(each.plural for each in prefixes() if each.short_name == kind)

    return complete


def complete_contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found, _ = files.find_kubeconfig(context.params.get("kubeconfig"), os.environ)
    return [CompletionItem(name, help=said) for name, said in found.contexts.items() if name.startswith(incomplete)]


def _listed(given: dict[str, Any], plurals: Sequence[str]) -> list[str]:
    from cli.cluster import find_cluster

    directory: Path | None = given.get("directory")
    asked = find_cluster(given.get("kubeconfig"), directory, given.get("context_name"), given.get("namespace"), SECONDS)
    return asyncio.run(_names(asked, [_resource(plural) for plural in plurals]))


async def _names(asked: Cluster, resources: Sequence[Resource]) -> list[str]:
    from runtime.api import Api

    # Outside of the deadline: on a busy machine it takes longer to load the client than to be answered.
    connecting = Api.connect(
        asked.kubeconfig, user_agent="poolhouse-cli", timeout_seconds=SECONDS, context=asked.context
    )
    async with await connecting as api, asyncio.timeout(SECONDS):
        every = await asyncio.gather(*(_of(api, resource, asked.namespace) for resource in resources))
    return [name for found in every for name in found]


async def _of(api: Api, resource: Resource, namespace: str) -> list[str]:
    pages = api.pages(resource, namespace if resource.namespaced else None, page=MOST)
    async with aclosing(pages):
        return [each["metadata"]["name"] async for page, _ in pages for each in page][:MOST]


def _resource(plural: str) -> Resource:
    from runtime.resource import Resource

    if plural == "namespaces":
        return Resource("", "v1", plural, "Namespace", namespaced=False)
    return Resource.of(next(each for each in named_kinds() if each.plural == plural))
