"""Implements `poolhouse conformance`: performs the behaviours of KubeVirt that Poolhouse relies on, on any cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from poolhouse.api.kubevirt.behaviours import BEHAVIOURS
from poolhouse.api.kubevirt.behaviours.steps import Behaviour
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings, choose
from poolhouse.api.kubevirt.live_updates import is_live_update
from poolhouse.api.kubevirt.versions import dotted
from poolhouse.cli.cluster import Cluster, cluster_options_without
from poolhouse.cli.output import echo, echo_block, is_structured, output_option, print_structured, style
from poolhouse.cli.parameters import Duration
from poolhouse.cli.trial import LABELS, Result, Trial, shielded
from poolhouse.service.terminal import Styled, escaped

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

COLOURS = {"ok": "green", "differs": "red", "skipped": "yellow"}


@click.command()
@click.option("--no-guests", is_flag=True, help="Skip behaviours that need a running VM.")
@click.option("--only", metavar="NAME", multiple=True, help="Check only this behaviour. Can be repeated.")
@click.option(
    "--list", "listing", is_flag=True, default=None, help="Print the behaviours and why Poolhouse relies on them."
)
@click.option(
    "--timeout",
    "patience_seconds",
    type=Duration(),
    default="2m",
    show_default=True,
    help="How long to wait for each state of a VM.",
)
@output_option("text")
@cluster_options_without("listing")
def conformance(
    cluster: Cluster | None,
    no_guests: bool,
    only: tuple[str, ...],
    listing: bool | None,
    patience_seconds: float,
    output: str,
) -> None:
    """Check that the cluster's KubeVirt behaves as Poolhouse expects, for example before you install Poolhouse.

    The check creates a namespace, runs small VMs without disks in it, one at a time, and deletes it, also after an
    error or Ctrl-C. It changes nothing else. Exit code 1 means that a behaviour differs.
    """
    chosen = select(only)
    if cluster is None:
        _print_list(output, chosen)
        return
    report = None if is_structured(output) else _print_line
    version, results = cluster.run(
        lambda api: check(api, chosen, patience_seconds, guests=not no_guests, report=report)
    )
    if is_structured(output):
        print_structured(output, {"version": version, "behaviours": [vars(result) for result in results]})
    else:
        counts = ", ".join(f"{sum(r.outcome == each for r in results)} {each}" for each in COLOURS)
        echo(f"KubeVirt {version or 'of an unknown version'}: {counts}")
    if any(result.outcome == "differs" for result in results):
        sys.exit(1)


def select(only: Iterable[str]) -> list[Behaviour]:
    by_name = {each.name: each for each in BEHAVIOURS}
    if unknown := [name for name in only if name not in by_name]:
        raise click.UsageError(f"there is no behaviour {unknown[0]}; there are {', '.join(by_name)}")
    return [by_name[name] for name in only] or list(BEHAVIOURS)


def _print_list(output: str, chosen: list[Behaviour]) -> None:
    if is_structured(output):
        rows = [
            {"name": e.name, "what": e.what, "why": e.why, "guest": e.guest, "since": dotted(e.since)} for e in chosen
        ]
        print_structured(output, rows)
        return
    for each in chosen:
        echo_block(f"{each.name}: {each.what}.\n    {each.why}")


def _print_line(result: Result) -> None:
    outcome = style(result.outcome.ljust(8), COLOURS[result.outcome])
    message = f": {result.message}" if result.message else ""
    echo(Styled(outcome + escaped(f" {result.name}{message}")))


async def check(
    api: Api,
    behaviours: Iterable[Behaviour],
    patience_seconds: float,
    *,
    guests: bool = True,
    report: Callable[[Result], None] | None = None,
) -> tuple[str, list[Result]]:
    """Returns KubeVirt's version, "" if it is unknown, and the results. Deletes what it has created."""
    version, settings = await _version(api)
    results = []
    namespace = f"poolhouse-conformance-{uuid4().hex[:8]}"
    await _create_namespace(api, namespace)
    try:
        for number, behaviour in enumerate(behaviours):
            result = _skipped(behaviour, settings, guests=guests)
            if result is None:
                result = await Trial(api, namespace, f"conformance-{number}", patience_seconds).run(behaviour)
            results.append(result)
            if report is not None:
                report(result)
    finally:
        await shielded(_delete_namespace(api, namespace))
    return version, results


def _skipped(behaviour: Behaviour, settings: ClusterSettings, *, guests: bool) -> Result | None:
    if behaviour.guest and not guests:
        return Result(behaviour.name, "skipped", "it needs a running VM")
    if settings.release is not None and settings.release < behaviour.since:
        return Result(behaviour.name, "skipped", f"it exists since KubeVirt {dotted(behaviour.since)}")
    if behaviour.gate is not None and settings.release is not None and not settings.enables(behaviour.gate):
        return Result(behaviour.name, "skipped", f"KubeVirt's feature gate {behaviour.gate.name} is off")
    if behaviour.live and settings.release is not None and not is_live_update(settings):
        return Result(behaviour.name, "skipped", "vmRolloutStrategy of the KubeVirt object is not LiveUpdate")
    return None


async def _version(api: Api) -> tuple[str, ClusterSettings]:
    from poolhouse.cli.cluster import list_visible
    from poolhouse.runtime.resource import KUBEVIRTS

    found = choose(await list_visible(api, KUBEVIRTS, None) or [])
    settings = ClusterSettings.of(found) if found is not None else ClusterSettings()
    return next(iter(settings.versions), ""), settings


async def _create_namespace(api: Api, name: str) -> None:
    """Creates the namespace, and deletes it if nobody knows whether it was created."""
    from poolhouse.runtime.errors import OUTCOME_UNKNOWN

    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": LABELS}}
    unknown: tuple[type[BaseException], ...] = (*OUTCOME_UNKNOWN, asyncio.CancelledError)
    try:
        await api.request("POST", "/api/v1/namespaces", body=body)
    except unknown:
        await shielded(_delete_namespace(api, name))
        raise


async def _delete_namespace(api: Api, name: str) -> None:
    from poolhouse.runtime.errors import ApiError, NotFound

    for _ in range(3):
        try:
            await api.request("DELETE", f"/api/v1/namespaces/{name}")
            return
        except NotFound:
            return
        except ApiError as error:
            last = error
            await asyncio.sleep(1)
    echo(f"namespace {name} is left behind; delete it with `kubectl delete namespace {name}`: {last}", err=True)
