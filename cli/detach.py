"""`poolhouse detach` and `poolhouse attach`: remove a VM from its pool, and put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from apimachinery.owner_references import controller_of, controller_reference
from apimachinery.unstructured import Json
from cli.cluster import Cluster, cluster_options
from cli.completion import complete_names
from cli.conflicts import again_if_changed
from cli.output import Failed, count_noun, output_option, print_result
from cli.parameters import POOL, VM
from cli.pools import POOL_KIND, get_pool, get_vm, list_vms

if TYPE_CHECKING:
    from runtime.api import Api


@click.command()
@click.argument("vm", type=VM, shell_complete=complete_names("virtualmachines"))
@output_option("text")
@cluster_options
def detach(cluster: Cluster, vm: str, output: str) -> None:
    """Remove a VM from its pool, for example to debug it.

    The VM keeps running, and no other VM gets its name. The pool creates a replacement.
    """
    pool, message = cluster.run(lambda api: detach_vm(api, cluster, vm))
    print_result(output, message, vm=vm, pool=pool)


@again_if_changed
async def detach_vm(api: Api, cluster: Cluster, vm: str) -> tuple[str, str]:
    """Removes the VM from its pool. Returns the pool and a message."""
    document = await get_vm(api, cluster, vm)
    owner = controller_of(document)
    if owner is None or owner["kind"] != POOL_KIND:
        raise Failed(f"{vm} is in no pool" + (f"; {owner['kind']} {owner['name']} controls it" if owner else ""))
    others = [each for each in document["metadata"]["ownerReferences"] if each is not owner]
    paused = await _paused(api, cluster, owner["name"])
    await _set_owners(api, cluster, document, others)
    pool = str(owner["name"])
    when = " when it is resumed, because it is paused" if paused else ""
    return pool, f"{vm} is detached from {pool}, which creates a replacement{when}; attach puts it back"


@click.command()
@click.argument("vm", type=VM, shell_complete=complete_names("virtualmachines"))
@click.option(
    "--to",
    "pool",
    metavar="POOL",
    type=POOL,
    shell_complete=complete_names("virtualmachinepools"),
    help="Default: the pool in the VM's label poolhouse.dev/pool.",
)
@output_option("text")
@cluster_options
def attach(cluster: Cluster, vm: str, pool: str | None, output: str) -> None:
    """Put a VM back into a pool. Its name must match the pool: POOL-1, POOL-2 and so on.

    If the pool then has too many VMs, scale-in deletes one. The annotation poolhouse.dev/scale-in: Protect protects a
    VM from that.
    """
    name, excess, message = cluster.run(lambda api: attach_vm(api, cluster, vm, pool))
    print_result(output, message, vm=vm, pool=name, excess=excess)


@again_if_changed
async def attach_vm(api: Api, cluster: Cluster, vm: str, pool: str | None) -> tuple[str, int, str]:
    """Puts the VM into the pool, or into that of its label. Returns the pool, its excess of VMs, and a message."""
    from kinds.pool import POOL

    document = await get_vm(api, cluster, vm)
    name = _attachable_to(document, pool)
    target = await get_pool(api, cluster, name)
    if target["metadata"].get("deletionTimestamp"):
        raise Failed(f"{name} is being deleted")
    reference = controller_reference(POOL.api_version, POOL.kind, name, target["metadata"]["uid"])
    # Counted before, because the controller deletes the excess at once.
    others = [each for each in await list_vms(api, target) if not each["metadata"].get("deletionTimestamp")]
    await _set_owners(api, cluster, document, [*(document["metadata"].get("ownerReferences") or ()), reference])
    excess = max(0, len(others) + 1 - target["spec"]["replicas"])
    message = f"{vm} is attached to {name}"
    if excess:
        message += f", which has {count_noun(excess, 'VM')} more than spec.replicas: scale-in deletes the excess"
    return name, excess, message


def _attachable_to(document: Json, pool: str | None) -> str:
    """Returns the name of the pool that the VM can join."""
    from controllers.shared.names import ordinal_of
    from kinds import meta

    metadata = document["metadata"]
    vm, owner = metadata["name"], controller_of(document)
    if owner is not None:
        raise Failed(f"{vm} belongs to {owner['kind']} {owner['name']}; detach it there first")
    if metadata.get("deletionTimestamp"):
        raise Failed(f"{vm} is being deleted")
    name = pool or (metadata.get("labels") or {}).get(meta.POOL)
    if not name:
        raise Failed(f"{vm} has no label {meta.POOL}; give --to POOL")
    if ordinal_of(name, vm) is None:
        raise Failed(f"{vm} can't be in {name}: its VMs are named {name}-1, {name}-2 and so on")
    return str(name)


async def _paused(api: Api, cluster: Cluster, pool: str) -> bool:
    from runtime.errors import Forbidden, NotFound

    try:
        return bool((await get_pool(api, cluster, pool))["spec"].get("paused"))
    except (Forbidden, NotFound):
        return False


async def _set_owners(api: Api, cluster: Cluster, document: Json, references: list[Json]) -> None:
    from runtime.resource import VMS

    metadata = document["metadata"]
    # With the resource version, the patch does not remove an owner reference that another client has added meanwhile.
    change = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "ownerReferences": references}
    await api.patch(VMS, cluster.namespace, metadata["name"], {"metadata": change})
