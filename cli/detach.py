"""`poolhouse detach` and `poolhouse attach`: taking a VM out of its pool, and putting it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.cluster import Cluster, cluster_options
from cli.output import Failed, count_noun, output_option, print_result
from cli.pools import KIND, controller_of, get_pool, get_vm, list_vms
from cli.resource_names import POOL, VM, complete_names

if TYPE_CHECKING:
    from runtime.api import Api

Json = dict[str, Any]


@click.command()
@click.argument("vm", type=VM, shell_complete=complete_names("virtualmachines"))
@output_option("text")
@cluster_options
def detach(cluster: Cluster, vm: str, output: str) -> None:
    """Take a VM out of its pool, to look at it in peace.

    It runs on untouched, and its name is given to no other VM. The pool makes another VM in its place.
    """

    async def release(api: Api) -> tuple[str, bool]:
        document = await get_vm(api, cluster, vm)
        owner = controller_of(document)
        if owner is None or owner["kind"] != KIND:
            raise Failed(f"{vm} is in no pool" + (f"; {owner['kind']} {owner['name']} controls it" if owner else ""))
        left = [each for each in document["metadata"]["ownerReferences"] if each is not owner]
        paused = await _paused(api, cluster, owner["name"])
        await _write(api, cluster, document, left)
        return str(owner["name"]), paused

    pool, paused = cluster.run(release)
    when = " when it is resumed, for it is paused" if paused else ""
    said = f"{vm} is out of {pool}, which makes another VM in its place{when}; attach puts it back"
    print_result(output, said, vm=vm, pool=pool)


@click.command()
@click.argument("vm", type=VM, shell_complete=complete_names("virtualmachines"))
@click.option(
    "--to",
    "pool",
    metavar="POOL",
    type=POOL,
    shell_complete=complete_names("virtualmachinepools"),
    help="Else the pool that its label poolhouse.dev/pool names.",
)
@output_option("text")
@cluster_options
def attach(cluster: Cluster, vm: str, pool: str | None, output: str) -> None:
    """Put a VM back into a pool. It must have a name of that pool's: POOL-1, POOL-2 and so on.

    If the pool has its VMs already, it is one too many then, and scale-in chooses which one leaves. Protect a VM from
    that by the annotation poolhouse.dev/scale-in: Protect.
    """

    async def adopt(api: Api) -> tuple[str, int]:
        from controllers.shared.names import ordinal_of
        from kinds import meta
        from kinds.pool import POOL

        document = await get_vm(api, cluster, vm)
        metadata = document["metadata"]
        owner = controller_of(document)
        if owner is not None:
            raise Failed(f"{vm} belongs to {owner['kind']} {owner['name']}; detach it there first")
        if metadata.get("deletionTimestamp"):
            raise Failed(f"{vm} is being deleted")
        name = pool or (metadata.get("labels") or {}).get(meta.POOL)
        if not name:
            raise Failed(f"{vm} does not say which pool it was in; give --to POOL")
        if ordinal_of(name, vm) is None:
            examples = f"{name}-1, {name}-2 and so on"
            raise Failed(f"{vm} can't be in {name}: its VMs are named {examples}, and it could never update another")
        target = await get_pool(api, cluster, name)
        if target["metadata"].get("deletionTimestamp"):
            raise Failed(f"{name} is being deleted")
        reference = {
            "apiVersion": POOL.api_version,
            "kind": POOL.kind,
            "name": name,
            "uid": target["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        await _write(api, cluster, document, [*(metadata.get("ownerReferences") or ()), reference])
        alive = [m for m in await list_vms(api, target) if not m["metadata"].get("deletionTimestamp")]
        return name, len(alive) - target["spec"]["replicas"]

    name, excess = cluster.run(adopt)
    said = f"{vm} is in {name}"
    if excess > 0:
        said += f", which has {count_noun(excess, 'VM')} more than it should: scale-in chooses who leaves"
    print_result(output, said, vm=vm, pool=name, excess=max(excess, 0))


async def _paused(api: Api, cluster: Cluster, pool: str) -> bool:
    from runtime.errors import Forbidden, NotFound

    try:
        return bool((await get_pool(api, cluster, pool))["spec"].get("paused"))
    except (Forbidden, NotFound):
        return False  # who may not know it, or knows that it is gone, is told what pools do


async def _write(api: Api, cluster: Cluster, document: Json, references: list[Json]) -> None:
    from runtime.resource import VMS

    metadata = document["metadata"]
    # With the version that was looked at: a reference that came meanwhile must not be lost.
    change = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "ownerReferences": references}
    await api.patch(VMS, cluster.namespace, metadata["name"], {"metadata": change})
