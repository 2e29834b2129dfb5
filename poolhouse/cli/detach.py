"""`poolhouse detach` and `poolhouse attach`: remove a VM from its pool, and put it back."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.cluster import Cluster, cluster_options
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.output import Failed, confirm, is_structured, output_option, print_result
from poolhouse.cli.parameters import POOL, VM
from poolhouse.cli.pools import BURST, controlling_pool, describe_controller, get_pool, get_vm, list_vms

if TYPE_CHECKING:
    from controllers.pool.stores import Stores
    from poolhouse.runtime.api import Api


@click.command()
@click.argument("vm", type=VM)
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
    from poolhouse.api.kinds.tracking_marks import without_tracking_marks

    document = await get_vm(api, cluster, vm)
    owner = controlling_pool(document)
    if owner is None:
        other = controller_of(document)
        why = f" of Poolhouse; {describe_controller(other)} controls it" if other is not None else ""
        raise Failed(f"{vm} is in no pool{why}")
    others = [each for each in document["metadata"]["ownerReferences"] if each is not owner]
    paused = await _paused(api, cluster, owner["name"])
    await _set_owners(api, cluster, document, others, **without_tracking_marks(document["metadata"]))
    pool = str(owner["name"])
    when = " when it is resumed, because it is paused" if paused else ""
    return pool, f"{vm} is detached from {pool}, which creates a replacement{when}; attach puts it back"


@click.command()
@click.argument("vms", metavar="VM...", nargs=-1, type=VM)
@click.option(
    "--all", "every", is_flag=True, help="Attach all VMs with the pool's names and label that nobody controls."
)
@click.option(
    "--to",
    "pool",
    metavar="POOL",
    type=POOL,
    help="Default: the pool in the VM's label poolhouse.dev/pool.",
)
@click.option("--yes", is_flag=True, help="Attach the VM even if scale-in then deletes a VM.")
@output_option("text")
@cluster_options
def attach(cluster: Cluster, vms: tuple[str, ...], every: bool, pool: str | None, yes: bool, output: str) -> None:
    """Put VMs back into a pool. Their names must match the pool: POOL-1, POOL-2 and so on.

    VMs that were restored from a backup have no owner. --all --to POOL takes all of them back.

    If the pool then has too many VMs, scale-in deletes one. The command names that VM before it attaches yours. It
    asks in a terminal; elsewhere it needs --yes. The annotation poolhouse.dev/scale-in: Protect protects a VM.
    """
    if every and pool is None:
        raise click.UsageError("--all needs --to POOL")
    if every == bool(vms):
        raise click.UsageError("give the names of VMs, or --all --to POOL")
    if every:
        vms = cluster.run(lambda api: unowned_vms(api, cluster, str(pool)))
    try:
        attached = cluster.run(lambda api: attach_vms(api, cluster, vms, pool, yes=yes))
    except WouldDelete as error:
        if not sys.stdin.isatty() or is_structured(output):
            raise
        confirm(f"{error.consequence}. Attach {'it' if len(vms) == 1 else 'them'}?")
        attached = cluster.run(lambda api: attach_vms(api, cluster, vms, pool, yes=True))
    print_result(
        output,
        attached.message,
        vm=attached.vm,
        vms=list(vms),
        pool=attached.pool,
        excess=attached.excess,
        deletes=list(attached.deletes),
    )


class WouldDelete(Failed):
    """The act would let the controller delete VMs, and the user has not agreed to it."""

    def __init__(self, consequence: str) -> None:
        advice = "protect a VM with the annotation poolhouse.dev/scale-in=Protect, raise spec.replicas, or give --yes"
        super().__init__(f"{consequence}; {advice}")
        self.consequence = consequence


@dataclass(frozen=True)
class Attachment:
    """VMs that get into a pool, and what the pool does then."""

    vm: str
    """the name of the VM, or the names of several"""
    pool: str
    excess: int
    """how many VMs more than spec.replicas the pool has then"""
    deletes: tuple[str, ...]
    """the VMs that scale-in deletes then; empty if the user may not list what decides it"""
    paused: bool = False
    several: bool = False
    waits: str = ""
    """why scale-in deletes no VM, or fewer than the excess"""

    @property
    def harmless(self) -> bool:
        """Whether scale-in deletes no VM, also when the pool is resumed."""
        return not self.excess or bool(self.waits and not self.deletes)

    @property
    def consequence(self) -> str:
        return f"if {self.vm} {'join' if self.several else 'joins'} {self.pool}, {self._scale_in}"

    @property
    def message(self) -> str:
        found = f"{self.vm} {'are' if self.several else 'is'} attached to {self.pool}"
        if self.excess:
            return f"{found}, which has {count_noun(self.excess, 'VM')} more than spec.replicas: {self._scale_in}"
        return (
            f"{found}, which is paused: it does nothing to {self._them} until it is resumed" if self.paused else found
        )

    @property
    def _them(self) -> str:
        return "the VMs" if self.several else "the VM"

    @property
    def _scale_in(self) -> str:
        if self.harmless:
            return f"scale-in deletes none now: {self.waits}"
        deleted = ", ".join(self.deletes) or count_noun(self.excess, "VM")
        when = f" when {self.pool} is resumed, because it is paused" if self.paused else ""
        return f"scale-in deletes {deleted}{when}" + (f"; {self.waits}" if self.waits else "")


async def unowned_vms(api: Api, cluster: Cluster, pool: str) -> tuple[str, ...]:
    """The VMs that the pool's condition UnownedVMs names."""
    from controllers.shared.vm import parse_vm
    from poolhouse.runtime.resource import VMS

    pages = api.pages(VMS, cluster.namespace)
    views = [parse_vm(each) async for items, _ in pages for each in items]
    found = tuple(sorted(vm.name for vm in views if vm.base_name == pool and vm.unowned))
    if not found:
        raise Failed(f"all VMs with the names and the label of {pool} have an owner")
    return found


@again_if_changed
async def attach_vms(api: Api, cluster: Cluster, vms: tuple[str, ...], pool: str | None, *, yes: bool) -> Attachment:
    """Puts the VMs into the pool, or into that of their label. Raises `WouldDelete` if scale-in then deletes a VM, and
    not `yes`. If it fails between two VMs, it can be repeated."""
    from controllers.shared.conditions import join_names
    from poolhouse.api.kinds.pool import POOL

    documents = [await get_vm(api, cluster, vm) for vm in dict.fromkeys(vms)]
    if len(documents) > 1:
        documents = [each for each in documents if not _is_attached(each, pool)]
    names = {_attachable_to(document, pool) for document in documents}
    if len(names) != 1:
        which = " and ".join(sorted(names))
        raise Failed(f"the VMs belong to the pools {which}; attach those of one pool" if names else "all are attached")
    (name,) = names
    target = await get_pool(api, cluster, name)
    if target["metadata"].get("deletionTimestamp"):
        raise Failed(f"{name} is being deleted")
    _check_names(name, documents)
    reference = controller_reference(POOL.api_version, POOL.kind, name, target["metadata"]["uid"])
    attached = [_with_owner(document, reference) for document in documents]
    present = [each for each in await list_vms(api, target) if not each["metadata"].get("deletionTimestamp")]
    excess = max(0, len(present) + len(documents) - target["spec"]["replicas"])
    shown = join_names(each["metadata"]["name"] for each in documents)
    found = Attachment(shown, name, excess, (), bool(target["spec"].get("paused")), several=len(documents) > 1)
    if excess:
        found = await _foreseen(api, found, attached)
        if not yes and not found.harmless:
            raise WouldDelete(found.consequence)
    for document, after in zip(documents, attached, strict=True):
        await _set_owners(api, cluster, document, after["metadata"]["ownerReferences"])
    return found


def _check_names(pool: str, documents: Iterable[Json]) -> None:
    """Raises `Failed` for a VM whose name is not one of the pool."""
    from controllers.shared.names import ordinal_of

    for name in (document["metadata"]["name"] for document in documents):
        if ordinal_of(pool, name) is None:
            raise Failed(f"{name} can't be in {pool}: its VMs are named {pool}-1, {pool}-2 and so on")


def _with_owner(document: Json, reference: Json) -> Json:
    owners = [*(document["metadata"].get("ownerReferences") or ()), reference]
    return {**document, "metadata": {**document["metadata"], "ownerReferences": owners}}


def _is_attached(document: Json, pool: str | None) -> bool:
    from poolhouse.api.kinds import meta

    owner = controlling_pool(document)
    name = pool or (document["metadata"].get("labels") or {}).get(meta.POOL)
    return owner is not None and owner["name"] == name


async def _foreseen(api: Api, attachment: Attachment, documents: list[Json]) -> Attachment:
    from controllers.pool.list_stores import list_stores
    from poolhouse.runtime.errors import Forbidden

    try:
        stores = await list_stores(api, documents[0]["metadata"]["namespace"])
    except Forbidden:
        return attachment
    return foresee(stores, attachment, documents, datetime.now(UTC))


def foresee(stores: Stores, attachment: Attachment, documents: list[Json], now: datetime) -> Attachment:
    """What the pool's scale-in does after the VMs of the documents are attached, or when the pool is resumed."""
    from controllers.pool.actions import Delete
    from controllers.pool.observe import observe
    from controllers.pool.simulate import simulate
    from controllers.pool.snapshot import PoolSnapshot
    from controllers.shared.vm import parse_vm

    for view in map(parse_vm, documents):
        stores.vms.put(view.key, view)
    namespace = documents[0]["metadata"]["namespace"]
    snapshot = observe(stores, (namespace, attachment.pool), synced=True, failure=None, burst=BURST)
    if not isinstance(snapshot, PoolSnapshot):
        return replace(
            attachment, waits=f"{attachment.pool} is invalid: {snapshot.problem}" if snapshot else "it is gone"
        )
    spec = snapshot.pool.spec.model_copy(update={"paused": False})
    found = simulate(replace(snapshot, pool=replace(snapshot.pool, spec=spec)), now)
    deletes = tuple(each.name for step in found.steps for each in step.actions if isinstance(each, Delete))
    return replace(attachment, deletes=deletes, waits="" if len(deletes) >= attachment.excess else found.blocked)


def _attachable_to(document: Json, pool: str | None) -> str:
    """Returns the name of the pool that the VM can join."""
    from poolhouse.api.kinds import meta

    metadata = document["metadata"]
    vm, owner = metadata["name"], controller_of(document)
    if owner is not None:
        raise Failed(f"{vm} belongs to {describe_controller(owner)}; detach it there first")
    if metadata.get("deletionTimestamp"):
        raise Failed(f"{vm} is being deleted")
    name = pool or (metadata.get("labels") or {}).get(meta.POOL)
    if not name:
        raise Failed(f"{vm} has no label {meta.POOL}; give --to POOL")
    return str(name)


async def _paused(api: Api, cluster: Cluster, pool: str) -> bool:
    from poolhouse.runtime.errors import Forbidden, NotFound

    try:
        return bool((await get_pool(api, cluster, pool))["spec"].get("paused"))
    except (Forbidden, NotFound):
        return False


async def _set_owners(api: Api, cluster: Cluster, document: Json, references: list[Json], **others: Json) -> None:
    from poolhouse.runtime.resource import VMS

    metadata = document["metadata"]
    # With the resource version, the patch does not remove an owner reference that another client has added meanwhile.
    change = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "ownerReferences": references}
    change |= others
    await api.patch(VMS, cluster.namespace, metadata["name"], {"metadata": change})
