"""`poolhouse claim`: claims a warm VM, lists and extends claims, and connects to the display and console of a VM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.timestamps import format_time, parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli import claim_status
from poolhouse.cli.claim import claim as create
from poolhouse.cli.claim_status import FINISHED, describe, reason, to_the_second
from poolhouse.cli.cluster import Cluster, all_namespaces, cluster_options
from poolhouse.cli.command_group import DefaultCommandGroup
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.health import format_age
from poolhouse.cli.output import (
    Column,
    Failed,
    Listing,
    Unreachable,
    echo,
    field,
    is_structured,
    output_option,
    print_result,
)
from poolhouse.cli.parameters import CLAIM, WARM_POOL, Duration, qualified_name
from poolhouse.cli.vm_streams import LOOPBACK, attach_console, serve_vnc, viewer_command

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

EXTEND_SECONDS = 15.0
POLL_SECONDS = 0.2
LISTING = Listing(
    (
        field("NAME", "name"),
        field("POOL", "pool"),
        field("PHASE", "phase"),
        field("VM", "vm"),
        field("ADDRESS", "address"),
        Column("EXPIRES", lambda row: row["left"]),
        field("AGE", "age"),
        field("REASON", "reason"),
        field("REQUESTER", "requester", wide=True),
    ),
    name=lambda row: qualified_name("VirtualMachineClaim", row["name"]),
)
ELSEWHERE = {"release": "release", "delete": "release", "ssh": "ssh"}
claim_argument = click.argument("name", type=CLAIM)


@click.group(cls=DefaultCommandGroup, default="create", elsewhere=ELSEWHERE, no_args_is_help=False)
def claim() -> None:
    """Claim a warm VM: `claim NAME` is short for `claim create NAME`. The other commands list your claims, extend one,
    and connect to its VM. `release` ends a claim."""


claim.add_command(create, "create")


@claim.command("list")
@click.option("--mine", is_flag=True, help="List only your own claims.")
@click.option("--pool", type=WARM_POOL, help="List those of a pool.")
@LISTING.option
@all_namespaces
@cluster_options
def list_claims(cluster: Cluster, mine: bool, pool: str | None, output: str) -> None:
    """List claims: their VMs, addresses, and when they expire. A claim belongs to the user who created it."""

    async def read(api: Api) -> list[Json]:
        from poolhouse.cli.resources import CLAIMS

        user = await who_am_i(api) if mine else None
        found, _ = await api.list(CLAIMS, cluster.scope)
        rows = [claim_row(each, api.now()) for each in found]
        wanted = [row for row in rows if user in (None, row["requester"]) and pool in (None, row["pool"])]
        return sorted(wanted, key=lambda row: (row["namespace"], row["name"]))

    whose = "you have no claims" if mine else "there are no claims"
    LISTING.show(output, cluster.run(read), nothing=f"{whose} in {cluster.place}", everywhere=cluster.everywhere)


async def who_am_i(api: Api) -> str:
    """The name of the user, as the API server knows it. The webhook records the same name in a new claim."""
    from poolhouse.runtime.errors import NotFound
    from poolhouse.runtime.resource import SELF_SUBJECT_REVIEWS as REVIEWS

    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}}
    try:
        found = await api.create(REVIEWS, review)
    except NotFound:
        raise Failed("the API server does not serve SelfSubjectReviews, which Kubernetes 1.28 and later do") from None
    return str(found["status"]["userInfo"]["username"])


def claim_row(document: Json, now: datetime) -> Json:
    from poolhouse.api.kinds import meta

    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    expires, phase = status.get("expiresAt"), status.get("phase") or "Pending"
    current = {} if phase in FINISHED else status  # the status keeps the VM that the claim had, as a record
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "pool": status.get("poolName") or spec.get("poolName"),
        "phase": phase,
        "vm": claim_status.vm_of(current),
        "address": next(iter(current.get("addresses") or ()), None),
        "expires": to_the_second(expires) if expires else None,
        "left": _left(parse_time(expires) - now) if expires and not status.get("finishedAt") else None,
        "age": format_age(document, now),
        "reason": reason(status) or None,
        "requester": (metadata.get("annotations") or {}).get(meta.REQUESTER),
    }


def _left(time: timedelta) -> str:
    if time <= timedelta(0):
        return "now"
    hours, minutes = divmod(int(time.total_seconds()) // 60, 60)
    return f"in {hours}h{minutes}m" if hours else f"in {minutes}m" if minutes else f"in {int(time.total_seconds())}s"


@claim.command()
@claim_argument
@click.option("--by", "seconds", type=Duration(), required=True, help="How much longer to keep the VM: 600, 30m or 2h.")
@output_option("text")
@cluster_options
def extend(cluster: Cluster, name: str, seconds: float, output: str) -> None:
    """Keep the VM of a claim longer. The pool's claimPolicy.maxTTLSeconds is the limit."""

    end, message = cluster.run(lambda api: extend_claim(api, cluster.namespace, name, seconds))
    print_result(output, message, name=name, expiresAt=end or None)


@again_if_changed
async def extend_claim(api: Api, namespace: str, name: str, seconds: float) -> tuple[str, str]:
    """Returns the new end of the claim, and a sentence about it. Raises `Unreachable` if no controller sees the
    change in time, or `Failed`."""
    from poolhouse.cli.resources import CLAIMS

    document = await api.get(CLAIMS, namespace, name)
    before = (document.get("status") or {}).get("expiresAt")
    extended = await api.patch(CLAIMS, namespace, name, extension(document, round(seconds)))
    generation = extended["metadata"]["generation"]
    try:
        async with asyncio.timeout(EXTEND_SECONDS):
            while True:
                document = await api.get(CLAIMS, namespace, name)
                status = document.get("status") or {}
                if int(status.get("observedGeneration") or 0) >= generation:
                    after = str(status.get("expiresAt") or "")
                    return after, _extended(name, before, after, seconds)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise Unreachable(
            f"claim {name}: its spec is extended, and no controller has observed it yet; run `poolhouse doctor`"
        ) from None


def extension(document: Json, seconds: int) -> Json:
    """The change that extends the claim as it was read. Raises `Failed` for one that cannot be extended."""
    metadata = document["metadata"]
    return {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "spec": {"ttlSeconds": extended_ttl(document, seconds)},
    }


def extended_ttl(document: Json, seconds: int) -> int:
    """The new `spec.ttlSeconds`. Raises `Failed` for a claim that has ended, has no VM yet, or does not expire."""
    name, spec, status = document["metadata"]["name"], document.get("spec") or {}, document.get("status") or {}
    phase, expires, bound = status.get("phase") or "Pending", status.get("expiresAt"), status.get("boundAt")
    if phase in (*FINISHED, "Releasing"):
        raise Failed(f"{name} is {phase}, so it has no VM to keep; make a new claim")
    if expires is None or bound is None:
        if spec.get("ttlSeconds") is None:
            why = "it has no VM yet" if bound is None else "it has no time limit"
            raise Failed(f"{name} does not expire: {why}")
        return int(spec["ttlSeconds"]) + seconds
    # The status has the limit that applies, which may be the pool's.
    return round((parse_time(expires) - parse_time(bound)).total_seconds()) + seconds


def _extended(name: str, before: str | None, after: str, seconds: float) -> str:
    """The result for users. Raises `Failed` if the pool's limit has prevented the extension."""
    if not after:
        return f"{name} keeps its VM longer, once it has one"
    until = format_time(parse_time(after))
    told = f"{name} keeps its VM until {until}"
    if before is None:
        return told
    if (gained := (parse_time(after) - parse_time(before)).total_seconds()) < 1:
        why = "claimPolicy.maxTTLSeconds of the pool allows no later one, or the pool is deleted"
        raise Failed(f"the end stays {until}: {why}")
    return told if gained > seconds - 1 else f"{told}, which is the limit of the pool (claimPolicy.maxTTLSeconds)"


async def vm_of(api: Api, namespace: str, name: str) -> str:
    """The VM of a claim. Raises `Failed` without one."""
    from poolhouse.cli.resources import CLAIMS

    status = (await api.get(CLAIMS, namespace, name)).get("status") or {}
    if (status.get("instanceRef") or {}).get("id"):
        raise Failed(f"{name} has an EC2 instance, whose display KubeVirt does not serve; use ssh")
    vm = (status.get("vmRef") or {}).get("name")
    if vm is None or status.get("phase") not in ("Bound", "Ready"):
        raise Failed(f"{describe(name, status)}; it has no VM to connect to")
    return str(vm)


@claim.command()
@claim_argument
@cluster_options
def console(cluster: Cluster, name: str) -> None:
    """Connect the terminal to the serial console of the claim's VM. Ctrl+] ends the connection.

    Needs the right to get virtualmachineinstances/console of subresources.kubevirt.io.
    """

    async def connect(api: Api) -> None:
        await attach_console(api, cluster.namespace, await vm_of(api, cluster.namespace, name))

    cluster.run(connect)


@claim.command()
@claim_argument
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback. Default: a free one.")
@click.option("--proxy-only", is_flag=True, help="Start no viewer: connect one to the printed address, until Ctrl-C.")
@output_option("text")
@cluster_options
def vnc(cluster: Cluster, name: str, port: int, proxy_only: bool, output: str) -> None:
    """Show the display of the claim's VM in a VNC viewer (remote-viewer or vncviewer).

    Needs the right to get virtualmachineinstances/vnc of subresources.kubevirt.io.
    """

    def ready(port: int) -> Sequence[str] | None:
        viewer = None if proxy_only else viewer_command(port)
        address = f"{LOOPBACK}:{port}"
        if is_structured(output):
            print_result(output, "", name=name, address=address, viewer=viewer)
        elif viewer is None:
            missing = "" if proxy_only else "neither remote-viewer nor vncviewer is installed; "
            echo(f"{missing}connect a VNC viewer to {address}; Ctrl-C ends the proxy")
        else:
            echo(f"{viewer[0]} shows {name} through {address}")
        return viewer

    async def connect(api: Api) -> None:
        await serve_vnc(api, cluster.namespace, await vm_of(api, cluster.namespace, name), port, ready)

    cluster.run(connect)
