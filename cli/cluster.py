"""Reaching a cluster from the command line, by kubectl's own rules."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli import kubeconfig as files
from cli.duration import Duration
from cli.output import Failed, Unreachable
from cli.resource_names import complete_contexts, complete_names

if TYPE_CHECKING:
    from runtime.api import Api
    from runtime.errors import ApiError
    from runtime.resource import Resource

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

TIMEOUT_SECONDS = 15.0
UNAUTHORIZED = 401
ENDLESS_SECONDS = 365 * 86400.0
"""what kubectl's `--request-timeout=0` means"""


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    namespace: str
    context: str | None = None
    """else the kubeconfig's current one"""
    timeout_seconds: float = TIMEOUT_SECONDS
    everywhere: bool = False

    @property
    def scope(self) -> str | None:
        """The namespace to list in; None for all."""
        return None if self.everywhere else self.namespace

    def run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        """Does the work with a connection, and turns what the API server refuses into an exit code: 1 for a refusal, 3
        where there was no answer."""
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        from runtime.api import Api
        from runtime.errors import ApiError

        try:
            async with await Api.connect(
                self.kubeconfig, user_agent="poolhouse-cli", timeout_seconds=self.timeout_seconds, context=self.context
            ) as api:
                return await work(api)
        except ApiError as error:
            raise self._ending(error) from None
        except ExceptionGroup as group:  # of what was asked at the same time
            refused = group.subgroup(ApiError)
            if refused is None:
                raise
            raise self._ending(_first(refused)) from None

    def _ending(self, error: ApiError) -> click.ClickException:
        """How a command ends by an answer, or by none."""
        from runtime.errors import Throttled, Unavailable
        from runtime.errors import Unreachable as NoAnswer

        of = f"context {self.context} of {self.kubeconfig}" if self.context else str(self.kubeconfig)
        if isinstance(error, NoAnswer) and not error.call:
            return Failed(error.message)  # nobody was asked: the kubeconfig does not say how
        if isinstance(error, NoAnswer | Unavailable | Throttled):
            if (stack := _ended(self.kubeconfig)) is not None:
                return Unreachable(f"no stack is running in {stack}; `poolhouse up --dir {stack}` starts it")
            return Unreachable(
                f"no answer from the cluster of {of}: {error}; does `kubectl version` reach it? "
                "Another is chosen by --context or --kubeconfig, an embedded stack by --dir"
            )
        if error.status == UNAUTHORIZED:
            return Failed(
                f"{error.message}: the cluster does not accept the credentials of {of}; they may have expired"
            )
        return Failed(error.message)


def _first(group: ExceptionGroup[ApiError]) -> ApiError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner


def _ended(kubeconfig: Path) -> Path | None:
    """The directory of the embedded stack that wrote a kubeconfig, where that stack has ended."""
    if not os.access(kubeconfig.parent / "status.json", os.F_OK):
        return None
    from local.lock import holder  # images have no embedded stack
    from local.paths import StackPaths

    paths = StackPaths(kubeconfig.parent)
    return paths.dir if kubeconfig.name == paths.kubeconfig.name and holder(paths.lock) is None else None


async def list_visible(api: Api, resource: Resource, namespace: str | None) -> list[Json] | None:
    """Of the namespace, None for all. Empty where the cluster does not have the resource; None where whoever asks may
    not know."""
    from runtime.errors import Forbidden, NotFound

    try:
        return (await api.list(resource, namespace if resource.namespaced else None))[0]
    except NotFound:
        return []
    except Forbidden:
        return None


def cluster_options(command: F) -> F:
    """kubectl's `--kubeconfig`, `--context`, `--namespace` and `--request-timeout`, and `--dir`; the command's first
    argument is the `Cluster` that they mean."""
    return _cluster_options(command, lambda options: True)


def cluster_options_without(option: str) -> Callable[[F], F]:
    """Likewise, but None where this option of the command is given: with it no cluster is asked, and need not be."""
    return lambda command: _cluster_options(command, lambda options: options.get(option) is None)


def _cluster_options(command: F, needed: Callable[[Mapping[str, Any]], bool]) -> F:
    @click.option(
        "--kubeconfig", type=click.Path(path_type=Path, readable=False), help="Else $KUBECONFIG, else ~/.kube/config."
    )
    @click.option(
        "--context", "context_name", metavar="NAME", shell_complete=complete_contexts, help="Else the current one."
    )
    @click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path, readable=False),
        help="The embedded stack in this directory.",
    )
    @click.option("--namespace", "-n", shell_complete=complete_names("namespaces"), help="Else that of the context.")
    @click.option(
        "--request-timeout",
        "timeout_seconds",
        type=Duration(),
        default=f"{TIMEOUT_SECONDS:g}s",
        show_default=True,
        help="How long to wait for each answer, as 10s or 1m; 0 is for ever.",
    )
    @wraps(command)
    def with_cluster(
        *arguments: Any,
        kubeconfig: Path | None,
        context_name: str | None,
        directory: Path | None,
        namespace: str | None,
        timeout_seconds: float,
        everywhere: bool = False,
        **options: Any,
    ) -> Any:
        meant = None
        if needed(options):
            meant = find_cluster(kubeconfig, directory, context_name, namespace, timeout_seconds, everywhere)
        return command(meant, *arguments, **options)

    return with_cluster  # type: ignore[return-value]


def all_namespaces(command: F) -> F:
    """`-A`, for what lists; goes above `cluster_options`."""
    option: Callable[[F], F] = click.option(
        "--all-namespaces", "-A", "everywhere", is_flag=True, help="In all namespaces, whatever --namespace says."
    )
    return option(command)


def find_cluster(
    kubeconfig: Path | None,
    directory: Path | None,
    context: str | None,
    namespace: str | None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    everywhere: bool = False,
) -> Cluster:
    """The cluster that options mean, or a sentence on what is missing."""
    if kubeconfig and directory:
        raise click.UsageError("give --kubeconfig or --dir, not both")
    found, looked = files.find_kubeconfig(kubeconfig or (directory / "kubeconfig" if directory else None), os.environ)
    if not found.paths:
        where = " nor ".join(map(str, looked))
        raise Failed(f"there is no kubeconfig {where}; give --kubeconfig, or --dir of an embedded stack")
    if closed := [str(each) for each in found.paths if not os.access(each, os.R_OK)]:
        raise Failed(f"you may not read {', '.join(closed)}; give --kubeconfig with one of your own")
    if context is not None and context not in found.contexts:
        known = ", ".join(found.contexts) or "none"
        raise Failed(f"there is no context {context} in {found.joined}; there are {known}")
    chosen = context or (found.current if len(found.paths) > 1 else None)
    inherited = found.contexts.get(chosen or found.current or "", "default")
    return Cluster(found.joined, namespace or inherited, chosen, timeout_seconds or ENDLESS_SECONDS, everywhere)
