"""Reaching a cluster from the command line, by kubectl's own rules."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import yaml

from cli.output import Failed, Unreachable

if TYPE_CHECKING:
    from runtime.api import Api

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class Cluster:
    kubeconfig: Path
    namespace: str

    def run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        """Does the work with a connection, and turns what the API server refuses into an exit code: 1 for a refusal, 3
        where there was no answer."""
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[Api], Awaitable[T]]) -> T:
        from runtime.api import Api, ApiError, Throttled, Unavailable
        from runtime.api import Unreachable as NoAnswer

        try:
            async with await Api.connect(
                self.kubeconfig, user_agent="poolhouse-cli", timeout_seconds=TIMEOUT_SECONDS
            ) as api:
                return await work(api)
        except (NoAnswer, Unavailable, Throttled) as error:
            raise Unreachable(f"no answer from the cluster of {self.kubeconfig}: {error}") from None
        except ApiError as error:
            raise Failed(error.message) from None


def cluster_options(command: F) -> F:
    """`--kubeconfig`, `--dir` and `--namespace`; the command's first argument is the `Cluster` that they mean."""

    @click.option("--kubeconfig", type=click.Path(path_type=Path), help="Else $KUBECONFIG, else ~/.kube/config.")
    @click.option("--dir", "directory", type=click.Path(path_type=Path), help="The embedded stack in this directory.")
    @click.option("--namespace", "-n", help="Else that of the kubeconfig's context.")
    @wraps(command)
    def with_cluster(
        *arguments: Any, kubeconfig: Path | None, directory: Path | None, namespace: str | None, **options: Any
    ) -> Any:
        if kubeconfig and directory:
            raise click.UsageError("give --kubeconfig or --dir, not both")
        found = kubeconfig or (directory / "kubeconfig" if directory else _usual())
        if not found.is_file():
            raise Failed(f"there is no kubeconfig {found}; give --kubeconfig, or --dir of an embedded stack")
        return command(Cluster(found, namespace or _namespace(found)), *arguments, **options)

    return with_cluster  # type: ignore[return-value]


def _usual() -> Path:
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return next((each for each in named if each.is_file()), named[0] if named else Path.home() / ".kube" / "config")


def _namespace(kubeconfig: Path) -> str:
    try:
        content = yaml.safe_load(kubeconfig.read_text())
        chosen = next(each for each in content["contexts"] if each["name"] == content["current-context"])
        return str(chosen["context"].get("namespace") or "default")
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration):
        return "default"
