"""Connects to a cluster by kubectl's rules. Defines the options for a cluster and the exit codes of failures."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.resource_types import ResourceType
from poolhouse.cli.completion import complete_contexts, complete_names
from poolhouse.cli.kubeconfig import Kubeconfig, find_kubeconfig
from poolhouse.cli.output import Failed, Unreachable, echo
from poolhouse.cli.parameters import Duration
from poolhouse.runtime.resource import Resource
from poolhouse.service.signals import ending_signals, received

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.errors import ApiError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

TIMEOUT_SECONDS = 15.0
CREDENTIALS_SECONDS = 5.0
"""time after which the user learns that an exec plugin of the kubeconfig takes long"""
NOT_FOUND = 404
NO_LIST = re.compile(r'cannot list resource "(?P<plural>[^"]+)" in API group "(?P<group>[^"]*)" at the cluster scope')
"""Part of the API server's message for a list of all namespaces"""
OBJECT_PATH = re.compile(r"/namespaces/(?P<namespace>[^/?]+)/[^/?]+/(?P<name>[^/?]+)")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""where pods have the token of their ServiceAccount"""
NO_TIMEOUT_SECONDS = 365 * 86400.0
"""the meaning of kubectl's `--request-timeout=0`"""


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path | None
    """None: the ServiceAccount of the pod in which the command runs"""
    namespace: str
    context: str | None = None
    """name of the context; None selects the kubeconfig's current context"""
    timeout_seconds: float = TIMEOUT_SECONDS
    everywhere: bool = False
    requested_namespace: str | None = None
    """the namespace of `-n`; None if the context's namespace is used"""

    @property
    def scope(self) -> str | None:
        """The namespace to list in; None for all namespaces."""
        return None if self.everywhere else self.namespace

    @property
    def place(self) -> str:
        """The scope as text for messages."""
        return "any namespace" if self.everywhere else f"namespace {self.namespace}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of programs that connect to the cluster, such as kubectl."""
        return {**os.environ, **({"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {})}

    async def connect(self) -> AbstractAsyncContextManager[Api]:
        from poolhouse.runtime.api import Api

        connected = Api.connect(
            self.kubeconfig, user_agent="poolhouse-cli", timeout_seconds=self.timeout_seconds, context=self.context
        )
        # No limit, as in kubectl: the program may wait until a person has logged in.
        wait = f"waiting for the program that prints the credentials of {self.kubeconfig}"
        return await tell_if_late(connected, CREDENTIALS_SECONDS, lambda: echo(wait, err=True))

    def run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        """Runs `work` with a connection. The command exits with 1 after an API error, with 3 without a response. After
        SIGTERM or SIGHUP, as after Ctrl-C, `work` is cancelled, so that it deletes what it has created."""
        return asyncio.run(_until_terminated(self._run(work)))

    async def _run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        from poolhouse.runtime.errors import ApiError

        try:
            async with await self.connect() as api:
                return await work(api)
        except ApiError as error:
            raise self._exit(error) from None
        except ExceptionGroup as group:  # concurrent requests raise a group
            refused = group.subgroup(ApiError)
            if refused is None:
                raise
            raise self._exit(_first(refused)) from None

    def _exit(self, error: ApiError) -> click.ClickException:
        from poolhouse.runtime.errors import NotServed, Throttled, Unauthorized, Unavailable, WebhookFailed
        from poolhouse.runtime.errors import Unreachable as NoAnswer

        source = str(self.kubeconfig or "the pod's ServiceAccount")
        source = f"context {self.context} of {source}" if self.context else source
        if isinstance(error, NoAnswer) and not error.call:
            return Failed(error.message)  # the kubeconfig is invalid, so no request was sent
        if isinstance(error, WebhookFailed):
            return Failed(with_namespace(error))
        if isinstance(error, NoAnswer | Unavailable | Throttled):
            if self.kubeconfig and (stack := _stopped_stack(self.kubeconfig)) is not None:
                start = f"poolhouse up --dir {quote(str(stack))}"
                return Unreachable(f"no stack is running in {stack}; `{start}` starts it")
            if isinstance(error, Unavailable):
                return Unreachable(f"the API server of {source} has failed: {error}; `poolhouse doctor` checks more")
            return Unreachable(
                f"no answer from the cluster of {source}: {error}; check the connection with `kubectl version`, "
                "or choose another cluster with --context, --kubeconfig or (an embedded stack) --dir"
            )
        if isinstance(error, Unauthorized):
            return Failed(f"{error.message}: the cluster does not accept the credentials of {source}; renew them")
        if isinstance(error, NotServed):
            return Failed(f"{error.message} in the cluster of {source}; `poolhouse doctor` says what is missing there")
        if self.everywhere and (refused := NO_LIST.search(error.message)):
            kind = ".".join(filter(None, (refused["plural"], refused["group"])))
            return Failed(f"you may not list {kind} in all namespaces; choose one with -n")
        return Failed(with_namespace(error))


async def tell_if_late(work: Awaitable[T], seconds: float, tell: Callable[[], None]) -> T:
    """Awaits the work, and calls `tell` if that takes longer."""
    late = asyncio.get_running_loop().call_later(seconds, tell)
    try:
        return await work
    finally:
        late.cancel()


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Cancels the work at SIGTERM and SIGHUP, and exits with 143 or 129. A command's own handlers of them stay."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    own = ending_signals() if threading.current_thread() is threading.main_thread() else ()
    terminated_by = 0

    def terminate(number: int) -> None:
        nonlocal terminated_by
        terminated_by = number
        received(number)
        task.cancel()

    for each in own:
        loop.add_signal_handler(each, terminate, each)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated_by:
            raise SystemExit(128 + terminated_by) from None
        raise
    finally:
        for each in own:
            loop.remove_signal_handler(each)


def with_namespace(error: ApiError) -> str:
    """The message of the error. For a missing object, it names the namespace, which the API server leaves out. For a
    webhook that is down, it says whose webhook it is."""
    from poolhouse.cli.service_health import describe_webhook_failure
    from poolhouse.runtime.errors import WebhookFailed

    if isinstance(error, WebhookFailed):
        return describe_webhook_failure(error)
    found = OBJECT_PATH.search(error.call) if error.status == NOT_FOUND else None
    is_object = found is not None and error.details.get("name") == found["name"]
    return f"{error.message} in namespace {found['namespace']}" if found and is_object else error.message


def _first(group: ExceptionGroup[ApiError]) -> ApiError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner


def stack_of(kubeconfig: Path | None) -> Path | None:
    """The directory of the embedded stack that wrote this kubeconfig, or None."""
    if kubeconfig is None or not (kubeconfig.parent / "endpoints.json").is_file():
        return None
    return kubeconfig.parent if (kubeconfig.parent / "logs").is_dir() else None


def _stopped_stack(kubeconfig: Path) -> Path | None:
    """Returns the directory of the stopped embedded stack that wrote this kubeconfig, or None."""
    if not os.access(kubeconfig.parent / "status.json", os.F_OK):
        return None
    from poolhouse.stack.lock import holder  # images do not contain the embedded stack
    from poolhouse.stack.paths import StackPaths

    paths = StackPaths(kubeconfig.parent)
    return paths.dir if kubeconfig.name == paths.kubeconfig.name and holder(paths.lock) is None else None


async def list_visible(api: Api, resource: Resource, namespace: str | None) -> list[Json] | None:
    """Lists the objects in a namespace; None means all namespaces. Returns an empty list if the cluster does not serve
    the resource, None if the user may not list it."""
    from poolhouse.runtime.errors import Forbidden, NotFound

    try:
        return (await api.list(resource, namespace if resource.namespaced else None))[0]
    except NotFound:
        return []
    except Forbidden:
        return None


async def list_kinds(
    api: Api, kinds: Sequence[ResourceType], namespace: str | None
) -> tuple[list[Json], list[ResourceType]]:
    """Lists the objects of several kinds. Returns them with their kinds, which items of a list lack, and the kinds that
    the user may not list."""
    lists = await asyncio.gather(*(list_visible(api, Resource.of(kind), namespace) for kind in kinds))
    found = [*zip(kinds, lists, strict=True)]
    objects = [{**each, "kind": kind.kind} for kind, items in found for each in items or ()]
    return objects, [kind for kind, items in found if items is None]


def cluster_options(command: F) -> F:
    """Adds kubectl's `--kubeconfig`, `--context`, `--namespace` and `--request-timeout`, and `--dir`. Passes the
    `Cluster` as the command's first argument."""
    return _cluster_options(command, lambda options: True)


def cluster_options_without(option: str) -> Callable[[F], F]:
    """Like `cluster_options`, but passes None if the user sets this option: the command then needs no cluster."""
    return lambda command: _cluster_options(command, lambda options: options.get(option) is None)


def _cluster_options(command: F, needed: Callable[[Mapping[str, Any]], bool]) -> F:
    path = click.Path(path_type=Path, readable=False)

    @click.option("--kubeconfig", type=path, help="Default: $KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.")
    @click.option(
        "--context",
        "context_name",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="Context of the kubeconfig. Default: the current context.",
    )
    @click.option("--dir", "directory", type=path, help="Use the embedded stack in this directory.")
    @click.option(
        "--namespace", "-n", shell_complete=complete_names("namespaces"), help="Default: the context's namespace."
    )
    @click.option(
        "--request-timeout",
        "timeout_seconds",
        type=Duration(),
        default=f"{TIMEOUT_SECONDS:g}s",
        show_default=True,
        help="Time limit of each request, such as 10s or 1m; 0 means no limit.",
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
        cluster = None
        if needed(options):
            cluster = find_cluster(kubeconfig, directory, context_name, namespace, timeout_seconds, everywhere)
        return command(cluster, *arguments, **options)

    return with_cluster  # type: ignore[return-value]


def all_namespaces(command: F) -> F:
    """Adds `-A`. Write this decorator above `cluster_options`."""
    option: Callable[[F], F] = click.option(
        "--all-namespaces", "-A", "everywhere", is_flag=True, help="List all namespaces and ignore --namespace."
    )
    return option(command)


def pod_namespace(environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> str | None:
    """Returns the namespace of the pod in which the command runs; None outside of a pod, or without a token."""
    if not environment.get("KUBERNETES_SERVICE_HOST") or not os.access(directory / "token", os.R_OK):
        return None
    try:
        return (directory / "namespace").read_text().strip() or None
    except OSError:
        return None


def find_cluster(
    kubeconfig: Path | None,
    directory: Path | None,
    context: str | None,
    namespace: str | None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    everywhere: bool = False,
) -> Cluster:
    """Returns the cluster that the options select. Raises `Failed` without a usable kubeconfig."""
    if kubeconfig and directory:
        raise click.UsageError("give --kubeconfig or --dir, not both")
    namespace, limit = namespace or None, timeout_seconds or NO_TIMEOUT_SECONDS
    path = directory / "kubeconfig" if directory else kubeconfig
    found, searched = find_kubeconfig(path, os.environ)
    if not (found.paths or path or context) and (own := pod_namespace(os.environ)) is not None:
        return Cluster(None, namespace or own, None, limit, everywhere, namespace)
    _check_kubeconfig(found, searched, context)
    chosen = context or (found.current if len(found.paths) > 1 else None)
    inherited = found.contexts.get(chosen or found.current or "", "default")
    return Cluster(found.joined, namespace or inherited, chosen, limit, everywhere, namespace)


def _check_kubeconfig(found: Kubeconfig, searched: Iterable[Path], context: str | None) -> None:
    """Raises `Failed` if there is no kubeconfig, if it cannot be read, or if it does not have the context."""
    if not found.paths:
        where = " nor ".join(map(str, searched))
        raise Failed(f"there is no kubeconfig {where}; give --kubeconfig, or --dir of an embedded stack")
    if unreadable := [str(each) for each in found.paths if not os.access(each, os.R_OK)]:
        raise Failed(f"you may not read {', '.join(unreadable)}; give another file with --kubeconfig")
    if context is not None and context not in found.contexts:
        known = ", ".join(found.contexts) or "none"
        raise Failed(f"there is no context {context} in {found.joined}; there are {known}")
