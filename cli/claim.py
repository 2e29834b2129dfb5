"""`poolhouse claim` and `poolhouse release`: taking a warm VM, and giving it back."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from cli.cluster import Cluster, cluster_options
from cli.duration import Duration
from cli.output import Failed, Unreachable, is_structured, output_option, print_result, print_structured
from cli.resource_names import CLAIM, WARM_POOL, complete_names, qualified_name

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]

POLL_SECONDS = 0.05
POLL_MOST_SECONDS = 1.0
SSH_PORT = 22
SSH_SECONDS = 15.0
OVER = ("Released", "Expired", "Failed")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--pool",
    type=WARM_POOL,
    shell_complete=complete_names("virtualmachinewarmpools"),
    help="Else the default pool of the namespace.",
)
@click.option("--ttl", type=Duration(), help="Give it back after so long, as 600, 10m or 2h.")
@click.option("--on-empty", type=click.Choice(["ColdStart", "Queue", "Fail"]), help="Else as the pool says.")
@click.option("--instancetype", help="Else the pool's.")
@click.option("--image", help="Else the pool's.")
@click.option("--placement", help="Else any of the pool's.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Stay until it is Ready or has failed.")
@click.option(
    "--timeout", "seconds", type=Duration(), default="10m", show_default=True, help="How long to wait at most."
)
@click.option("--ssh", metavar="USER", help="Log in when it is ready: by virtctl if that is installed, else by ssh.")
@output_option("text", "name")
@cluster_options
def claim(
    cluster: Cluster,
    name: str | None,
    pool: str | None,
    ttl: float | None,
    on_empty: str | None,
    instancetype: str | None,
    image: str | None,
    placement: str | None,
    wait: bool,
    seconds: float,
    ssh: str | None,
    output: str,
) -> None:
    """Take a VM that is ready, or have one made.

    NAME is the claim's; one is made up where it is left out. Delete the claim, or `release` it, to give the VM back.
    Exits with 1 when the claim fails, with 3 when it takes longer than --timeout.
    """
    if ssh and not wait:
        raise click.UsageError("--ssh needs --wait")
    name = name or f"claim-{uuid4().hex[:8]}"
    overrides = {"instancetype": instancetype, "image": image, "placement": placement}
    spec: Json = {
        "poolName": pool,
        "ttlSeconds": None if ttl is None else int(ttl),
        "onEmpty": on_empty,
        "overrides": _given(overrides) or None,
    }

    async def take(api: Api) -> Json:
        from controllers.claim.snapshot import CLAIMS

        metadata = {"namespace": cluster.namespace, "name": name}
        body = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata, "spec": _given(spec)}
        document = await api.create(CLAIMS, body)
        return await _settled(api, document, time.monotonic() + seconds) if wait else document

    document = cluster.run(take)
    status = document.get("status") or {}
    phase = status.get("phase") or "Pending"
    if is_structured(output):
        print_structured(output, {"name": name, **status, "phase": phase})
    elif output == "name":
        click.echo(qualified_name("VirtualMachineClaim", name))
    if phase in OVER:
        raise Failed(said(name, status))
    if wait and phase != "Ready":
        raise Unreachable(f"{said(name, status)}; not Ready after {seconds:g} s, `release {name}` takes it back")
    if output == "text":
        click.echo(said(name, status))
    if ssh:
        _log_in(cluster, ssh, status)


@click.command()
@click.argument("name", type=CLAIM, shell_complete=complete_names("virtualmachineclaims"))
@click.option("--wait/--no-wait", default=True, show_default=True, help="Stay until its VM is gone.")
@click.option(
    "--timeout", "seconds", type=Duration(), default="2m", show_default=True, help="How long to wait at most."
)
@output_option("text")
@cluster_options
def release(cluster: Cluster, name: str, wait: bool, seconds: float, output: str) -> None:
    """Give a claimed VM back. It is destroyed; the claim stays as a record and can be deleted."""

    async def give(api: Api) -> str:
        from controllers.claim.snapshot import CLAIMS

        await api.patch(CLAIMS, cluster.namespace, name, {"spec": {"release": True}})
        end = time.monotonic() + seconds
        while True:
            status = (await api.get(CLAIMS, cluster.namespace, name)).get("status") or {}
            if not wait or status.get("phase") in OVER or time.monotonic() > end:
                return str(status.get("phase") or "Pending")
            await asyncio.sleep(0.2)

    phase = cluster.run(give)
    print_result(output, f"{name} is {phase}", name=name, phase=phase)
    if wait and phase not in OVER:
        raise Unreachable(f"claim {name} is still {phase} after {seconds:g} s")


def said(name: str, status: Json) -> str:
    phase = status.get("phase") or "Pending"
    if phase != "Ready":
        place = f", number {status['queuePosition']} in line" if status.get("queuePosition") else ""
        return f"{name}: {phase}{place}{': ' + reason(status) if reason(status) else ''}"
    timings = status.get("timings") or {}
    steps = ", ".join(
        f"{word} {timings[field]}"
        for word, field in (("queue", "queuedMs"), ("bind", "bindMs"), ("activate", "activateMs"), ("check", "checkMs"))
        if timings.get(field) is not None
    )
    took = f" after {timings['totalMs']} ms ({steps})" if timings.get("totalMs") is not None else ""
    machine = (status.get("vmRef") or {}).get("name") or (status.get("instanceRef") or {}).get("id")
    where = f" at {', '.join(status['addresses'])}" if status.get("addresses") else ""
    until = f", until {to_the_second(status['expiresAt'])}" if status.get("expiresAt") else ""
    return f"{name}: {machine} is yours{where}: {status.get('launchType')}{took}{until}"


def to_the_second(time: str) -> str:
    """Claims have their times in microseconds."""
    return re.sub(r"\.\d+Z$", "Z", time)


def reason(status: Json) -> str:
    """What holds it up: that it has no machine, else what its machine is not."""
    false = {c["type"]: c for c in status.get("conditions") or () if c["status"] == "False"}
    found = false.get("Bound") or false.get("Ready")
    return f"{found['reason']}: {found['message']}" if found else ""


async def _settled(api: Api, document: Json, end: float) -> Json:
    from controllers.claim.snapshot import CLAIMS

    metadata, pause = document["metadata"], POLL_SECONDS
    while True:
        phase = (document.get("status") or {}).get("phase")
        if phase == "Ready" or phase in OVER or time.monotonic() > end:
            return document
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, POLL_MOST_SECONDS)
        document = await api.get(CLAIMS, metadata["namespace"], metadata["name"])


def _log_in(cluster: Cluster, user: str, status: Json) -> None:
    """By KubeVirt's own command where there is one, which reaches a VM wherever it is; else at its address."""
    vm = (status.get("vmRef") or {}).get("name")
    if vm and (virtctl := shutil.which("virtctl")):
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        os.execve(virtctl, by_virtctl(cluster, user, vm), environment)
    address = next(iter(status.get("addresses") or ()), None)
    if address is None:
        raise Failed("the VM has no address to log in to; try its console")
    if shutil.which("ssh") is None:
        raise Failed(f"there is neither ssh nor virtctl here; log in as {user} at {address}")
    if why := unreachable(address, SSH_PORT, SSH_SECONDS):
        raise Failed(
            f"{address} port {SSH_PORT}: {why}. The VM is yours all the same; an address inside a cluster is reached by"
            " virtctl (install it, and --ssh uses it), and one of an embedded stack from nowhere but its guest"
        )
    os.execvp("ssh", ["ssh", f"{user}@{address}"])


def by_virtctl(cluster: Cluster, user: str, vm: str) -> list[str]:
    context = ["--context", cluster.context] if cluster.context else []
    return ["virtctl", "ssh", "--namespace", cluster.namespace, *context, f"{user}@vm/{vm}"]


def unreachable(address: str, port: int, seconds: float) -> str:
    """Why nothing answers there, or nothing. A guest that has just woken up may take a moment."""
    end, why = time.monotonic() + seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection((address, port), timeout=left).close()
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))
        else:
            return ""
    return f"{why} in {seconds:g} s"


def _given(values: Json) -> Json:
    return {key: value for key, value in values.items() if value is not None}
