"""Shell completion: the completion scripts, kubectl's plugin completion, and the names of objects."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from poolhouse.cli.kubeconfig import find_kubeconfig
from poolhouse.cli.output import echo, echo_block
from poolhouse.cli.parameters import NAMED_KINDS

if TYPE_CHECKING:
    from poolhouse.api.kinds.resource_types import ResourceType
    from poolhouse.cli.cluster import Cluster
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

VARIABLE = "_POOLHOUSE_COMPLETE"
KUBEVIRT_POOLS = "virtualmachinepools.pool.kubevirt.io"
"""The pools of KubeVirt itself."""
TIMEOUT_SECONDS = 2.0
MAX_NAMES = 500

# kubectl reads these directives of cobra from the last line of the output.
NO_FILES = ":4"
FILES = ":0"
DIRECTORIES = ":16"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of `poolhouse` for SHELL.

    For bash, run `. <(poolhouse completion bash)`. For `kubectl poolhouse`, kubectl's own completion runs the program
    `kubectl_complete-poolhouse`, which is installed with the plugin.
    """
    from poolhouse.cli.main import poolhouse

    script = get_completion_class(shell)
    assert script is not None  # click knows every choice above
    echo_block(script(poolhouse, {}, "poolhouse", VARIABLE).source())


def kubectl_answers(words: Sequence[str]) -> Iterator[str]:
    """Yields the lines that kubectl reads: the candidates for the last word with their help, then a directive."""
    from poolhouse.cli.main import poolhouse

    *given, incomplete = words or ("",)
    found = ShellComplete(poolhouse, {}, "kubectl poolhouse", VARIABLE).get_completions(list(given), incomplete)
    for item in found:
        if item.type == "plain":
            help_text = " ".join(str(item.help or "").split())
            yield f"{item.value}\t{help_text}" if help_text else str(item.value)
    types = {item.type for item in found}
    yield FILES if "file" in types else DIRECTORIES if "dir" in types else NO_FILES


def main() -> None:
    """Runs `kubectl_complete-poolhouse`. kubectl passes the words after `kubectl poolhouse` as arguments."""
    for line in kubectl_answers(sys.argv[1:]):
        echo(line)


def complete_names(*plurals: str, prefixes: Callable[[], Iterable[ResourceType]] = tuple, **kinds: str) -> Complete:
    """Returns a function that completes names of the resources. After `KIND/` the names are those of `kinds[KIND]`, or
    of the kind in `prefixes` with this short name. After errors and timeouts there are no completions."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kind, slash, start = incomplete.rpartition("/")
        try:
            found = _list_names(context.params, wanted) if (wanted := _wanted(kind)) else []
        except Exception:  # a shell cannot show messages about a missing cluster or missing rights
            return []
        return [CompletionItem(f"{kind}{slash}{each}") for each in dict.fromkeys(found) if each.startswith(start)]

    def _wanted(kind: str) -> tuple[str, ...]:
        if not kind:
            return plurals
        return (kinds[kind],) if kind in kinds else tuple(each.plural for each in prefixes() if each.short_name == kind)

    return complete


def complete_contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found, _ = find_kubeconfig(context.params.get("kubeconfig"), os.environ)
    return [CompletionItem(each, help=space) for each, space in found.contexts.items() if each.startswith(incomplete)]


def _list_names(options: dict[str, Any], plurals: Sequence[str]) -> list[str]:
    from poolhouse.cli.cluster import find_cluster

    given = (options.get(name) for name in ("kubeconfig", "directory", "context_name", "namespace"))
    kubeconfig, directory, context, namespace = given
    cluster = find_cluster(kubeconfig, directory, context, namespace, TIMEOUT_SECONDS)
    return asyncio.run(_names(cluster, [_resource(plural) for plural in plurals]))


async def _names(cluster: Cluster, resources: Sequence[Resource]) -> list[str]:
    # The timeout does not include `connect`, because loading the client can take long on a busy machine.
    async with await cluster.connect() as api, asyncio.timeout(TIMEOUT_SECONDS):
        every = await asyncio.gather(*(_names_of(api, resource, cluster.namespace) for resource in resources))
    return [name for found in every for name in found]


async def _names_of(api: Api, resource: Resource, namespace: str) -> list[str]:
    pages = api.pages(resource, namespace if resource.namespaced else None, page=MAX_NAMES)
    async with aclosing(pages):
        return [each["metadata"]["name"] async for page, _ in pages for each in page][:MAX_NAMES]


def _resource(plural: str) -> Resource:
    from poolhouse.runtime.resource import Resource

    if plural == "namespaces":
        return Resource("", "v1", plural, "Namespace", namespaced=False)
    if plural == KUBEVIRT_POOLS:
        plural, _, group = plural.partition(".")
        return Resource(group, "v1beta1", plural, "VirtualMachinePool")
    return Resource.of(next(each for each in NAMED_KINDS if each.plural == plural))
