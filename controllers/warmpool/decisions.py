"""Returns the decisions about warm VMs for the log in the pool's status."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from controllers.shared import decisions as shared
from controllers.shared.decisions import decision
from controllers.warmpool.actions import Action, CreateVM, DeleteVM, OrphanVM
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds.decisions import Decision, vm_reference

DELETED_BY_OTHER = "another client deleted the VM, or the claim"


def decisions(pool: WarmPool, actions: Iterable[Action], now: datetime) -> Iterator[Decision]:
    time = format_time(now)
    for each in actions:
        if each.recorded is not None and isinstance(each, CreateVM | DeleteVM | OrphanVM):
            name, uid = (each.name, "") if isinstance(each, CreateVM) else (each.vm.name, each.vm.uid)
            # The autoscaling decides without a client.
            excess = isinstance(each, DeleteVM) and each.cause == "Excess" and pool.spec.autoscaling is None
            client = pool.replicas_by if excess else ""
            yield decision(time, each.recorded, each.reason, vm_reference(name, uid), set_by=client)


def deleted_by_other(vm: WarmVM, now: datetime) -> Decision:
    """The deletion of a VM that neither the pool nor the claim controller reported."""
    reference = vm_reference(vm.name, vm.uid)
    if vm.claim_uid:
        claim = f"claim {vm.owner.name}" if vm.owner.uid == vm.claim_uid else "its claim"
        message = f"{claim} had it: {DELETED_BY_OTHER}"
        return decision(format_time(now), Reason.DELETED_BY_OTHER, message, reference)
    return shared.deleted_by_other(format_time(now), "warm pool", reference)
