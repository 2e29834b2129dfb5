"""The acts that take a VM out of its pool, put it back, and protect it from scale-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.kinds import meta
from poolhouse.cli import detach
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.pools import controlling_pool
from poolhouse.console.act import CONFIRMED, VM, Act, Run, Target, Values, may_patch, patches

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api


def _in_pool(target: Target) -> bool:
    return controlling_pool(target.document) is not None


def _was_in_pool(target: Target) -> bool:
    labels = target.document["metadata"].get("labels") or {}
    return meta.POOL in labels and controller_of(target.document) is None


async def _detach(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    return (await detach.detach_vm(api, cluster, target.name))[1]


async def _attach(api: Api, cluster: Cluster, target: Target, values: Values) -> str:
    try:
        return (await detach.attach_vms(api, cluster, (target.name,), None, yes=False)).message
    except detach.WouldDelete as error:
        if error.consequence != values.get(CONFIRMED):
            raise
        return (await detach.attach_vms(api, cluster, (target.name,), None, yes=True)).message


def _scale_in(target: Target) -> str:
    return str((target.document["metadata"].get("annotations") or {}).get(meta.SCALE_IN) or "")


def _protect(value: str | None, done: str) -> Run:
    return patches({"metadata": {"annotations": {meta.SCALE_IN: value}}}, done)


MEMBERSHIP_ACTS: tuple[Act, ...] = (
    Act(
        "detach",
        "Detach",
        (VM,),
        "Removes the VM from its pool. It keeps running, and the pool creates a replacement.",
        lambda target: f"poolhouse detach {target.name}",
        _detach,
        may_patch,
        available=_in_pool,
    ),
    Act(
        "attach",
        "Attach",
        (VM,),
        "Puts the VM back into its pool. If the pool then has too many VMs, scale-in deletes one.",
        lambda target: f"poolhouse attach {target.name} --yes",
        _attach,
        may_patch,
        available=_was_in_pool,
    ),
    Act(
        "protect",
        "Protect",
        (VM,),
        "Scale-in does not delete the VM.",
        lambda target: f"annotate vm/{target.name} {meta.SCALE_IN}=Protect --overwrite",
        _protect("Protect", "is protected from scale-in"),
        may_patch,
        available=lambda target: _in_pool(target) and _scale_in(target) != "Protect",
    ),
    Act(
        "unprotect",
        "End protection",
        (VM,),
        "Scale-in may delete the VM again.",
        lambda target: f"annotate vm/{target.name} {meta.SCALE_IN}-",
        _protect(None, "is not protected any more"),
        may_patch,
        available=lambda target: _in_pool(target) and bool(_scale_in(target)),
    ),
)
