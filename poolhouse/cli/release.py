"""`poolhouse release`: ends claims, and waits until their VMs are deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.claim_status import FINISHED
from poolhouse.cli.cluster import Cluster, cluster_options, with_namespace
from poolhouse.cli.output import Failed, Unreachable, echo, is_structured, output_option, print_structured
from poolhouse.cli.parameters import CLAIM, Duration, WaitingCommand

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.errors import ApiError

RETRY_SECONDS = 0.5
RELEASE_SECONDS = 3.0
"""time in which a release is tried again, and in which a creation without an answer is expected to be carried out"""
POLL_SECONDS = 0.2
RELEASED = "Released"


@click.command(cls=WaitingCommand)
@click.argument("names", nargs=-1, required=True, type=CLAIM)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until their VMs are deleted.")
@click.option("--timeout", "seconds", type=Duration(), default="2m", show_default=True, help="Longest wait.")
@output_option("text")
@cluster_options
def release(cluster: Cluster, names: tuple[str, ...], wait: bool, seconds: float, output: str) -> None:
    """Release claims. Their VMs are deleted; the claims stay as a record, and can be deleted.

    Exits with 1 if a claim cannot be released, after it has released the others.
    """

    names = tuple(dict.fromkeys(names))
    end = time.monotonic() + seconds if wait else 0.0
    found = cluster.run(lambda api: release_all(api, cluster.namespace, names, end))
    phases = {name: phase for name, phase in found.items() if isinstance(phase, str)}
    if shown := is_structured(output):
        rows = [
            {"name": name, **({"phase": result} if isinstance(result, str) else {"error": with_namespace(result)})}
            for name, result in found.items()
        ]
        print_structured(output, rows[0] if len(names) == 1 else rows)
    else:
        for name, phase in phases.items():
            echo(f"{name} is {phase}" if wait or phase in FINISHED else f"the release of {name} is requested")
    if refused := [f"{name}: {with_namespace(error)}" for name, error in found.items() if not isinstance(error, str)]:
        raise Failed("; ".join(refused), shown=shown)
    if wait and (late := [f"{name} is still {phase}" for name, phase in phases.items() if phase not in FINISHED]):
        raise Unreachable(f"after {seconds:g} s, {', '.join(late)}", shown=shown)


async def release_all(api: Api, namespace: str, names: Sequence[str], end: float) -> dict[str, str | ApiError]:
    """Releases the claims, and waits until they have ended, or the time is `end`. Returns the phase of each, or the
    error. The error of a single claim is raised."""
    from poolhouse.runtime.errors import ApiError

    async def result(name: str) -> str | ApiError:
        try:
            return await _released(api, namespace, name, end)
        except ApiError as error:
            if len(names) == 1:
                raise
            return error

    return dict(zip(names, await asyncio.gather(*map(result, names)), strict=True))


async def _released(api: Api, namespace: str, name: str, end: float) -> str:
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.api import find

    uid = (await api.patch(CLAIMS, namespace, name, {"spec": {"release": True}}))["metadata"]["uid"]
    while True:
        document = await find(api, CLAIMS, namespace, name)
        if document is None or document["metadata"]["uid"] != uid:
            return RELEASED  # for example, because ttlSecondsAfterFinished is over
        status = document.get("status") or {}
        if status.get("phase") in FINISHED or time.monotonic() > end:
            return str(status.get("phase") or "Pending")
        await asyncio.sleep(POLL_SECONDS)


def release_or_warn(cluster: Cluster, name: str, uid: str | None) -> bool:
    """Releases the claim, with retries. Returns whether it is released. A failure is only printed, because the command
    ends with its own exit code."""
    end = time.monotonic() + RELEASE_SECONDS
    while True:
        try:
            found = cluster.run(lambda api: release_claim(api, cluster.namespace, name, uid))
        except click.ClickException as error:
            why = error.message
        else:
            if found or uid:
                return True
            why = ""  # a request without an answer may still be carried out
        if time.monotonic() > end:
            break
        time.sleep(RETRY_SECONDS)
    if why:
        echo(f"claim {name} was not released: {why}; `poolhouse release {name}` releases it", err=True)
    return False


async def release_claim(api: Api, namespace: str, name: str, uid: str | None) -> bool:
    """Releases the claim. Returns whether it exists; with a UID, another claim of the name is left alone."""
    from poolhouse.cli.resources import CLAIMS
    from poolhouse.runtime.errors import Conflict, NotFound

    change: Json = {"metadata": {"uid": uid} if uid else {}, "spec": {"release": True}}
    try:
        await api.patch(CLAIMS, namespace, name, change)
    except (Conflict, NotFound):
        return False
    return True
