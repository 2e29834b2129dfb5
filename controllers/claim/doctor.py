"""Finds inconsistencies among warm VMs and claims, for `poolhouse warmpool doctor`.

The controllers correct these inconsistencies within seconds. If two runs find the same problem, the controllers do not
run, or a user changed labels or owner references.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from controllers.claim.snapshot import Claim
from controllers.warmpool.warm_pool import InvalidWarmPool, WarmPool
from controllers.warmpool.warm_vm import WarmVM, seconds_since
from poolhouse.api.kinds.warm_states import WarmState

MAX_RESERVATION_SECONDS = 60.0
"""Maximum time between the reservation of a VM and the status update of its claim, while a controller works."""

Problem = Literal["Orphaned", "ClaimGone", "StuckReservation", "MultipleVMs", "Inconsistent", "StuckDeletion"]


@dataclass(frozen=True)
class Finding:
    problem: Problem
    name: str
    """the name of the VM, or of the claim if no VM is concerned"""
    message: str
    delete: WarmVM | None = None
    """a VM that can be deleted to solve the problem, without a loss for users"""


def findings(
    vms: Iterable[WarmVM], claims: Collection[Claim], pools: Collection[WarmPool | InvalidWarmPool], now: datetime
) -> Iterator[Finding]:
    by_uid = {claim.uid: claim for claim in claims}
    owners = by_uid.keys() | {pool.uid for pool in pools}
    vms_of: dict[str, list[WarmVM]] = defaultdict(list)
    """the key is the UID of the claim"""
    for vm in vms:
        if vm.deleting:
            if seconds_since(vm.state_since, now) > 10 * MAX_RESERVATION_SECONDS:
                yield Finding("StuckDeletion", vm.name, "the VM is being deleted; see its finalizers")
            continue
        if vm.claim_uid:
            vms_of[vm.claim_uid].append(vm)
        if vm.orphaned:
            message = f"no pool manages the VM ({vm.orphaned}); delete it if you do not need it"
            yield Finding("Orphaned", vm.name, message)
        else:
            yield from _claimed_vm(vm, by_uid, now) if vm.claim_uid else _unclaimed_vm(vm, owners)
    for uid, found in vms_of.items():
        if uid in by_uid:
            yield from _multiple_vms(by_uid[uid], found)
    for claim in claims:
        yield from _ready_claim(claim, vms_of.get(claim.uid, []), now)


def _unclaimed_vm(vm: WarmVM, owners: Collection[str]) -> Iterator[Finding]:
    if vm.owner.uid not in owners:
        yield Finding("Orphaned", vm.name, "no pool or claim owns the VM", vm)
    elif vm.state is WarmState.ALLOCATING:
        yield Finding("Inconsistent", vm.name, "the VM is reserved, and its label names no claim", vm)


def _claimed_vm(vm: WarmVM, claims: Mapping[str, Claim], now: datetime) -> Iterator[Finding]:
    claim = claims.get(vm.claim_uid)
    if claim is None:
        yield Finding("ClaimGone", vm.name, "the claim of the VM is gone, and no other claim gets the VM", vm)
    elif vm.owner.uid != vm.claim_uid:
        message = f"the label of the VM names claim {claim.name}, its owner is {vm.owner.name}"
        yield Finding("Inconsistent", vm.name, message)
    elif vm.unclaimed or vm.state is WarmState.READY:
        yield Finding("Inconsistent", vm.name, f"the VM is {vm.state} and has claim {claim.name}", vm)
    elif vm.state is WarmState.ALLOCATING and not claim.vm_uid and _is_late(vm, now):
        age = seconds_since(vm.state_since, now)
        message = f"the VM was reserved for claim {claim.name} {age:.0f} s ago, and the claim's status does not have it"
        yield Finding("StuckReservation", vm.name, f"{message}: check whether the controllers run")


def _multiple_vms(claim: Claim, vms: list[WarmVM]) -> Iterator[Finding]:
    if len(vms) == 1:
        return
    names = ", ".join(sorted(vm.name for vm in vms))
    for vm in vms:
        if claim.vm_uid and vm.uid != claim.vm_uid:
            message = f"claim {claim.name} has the VMs {names}; its status has another one"
            yield Finding("MultipleVMs", vm.name, message, vm)
    if not claim.vm_uid:
        yield Finding("MultipleVMs", claim.name, f"the claim has the VMs {names}; its status has none yet")


def _ready_claim(claim: Claim, vms: list[WarmVM], now: datetime) -> Iterator[Finding]:
    if claim.status.phase != "Ready" or claim.status.instance_ref is not None:
        return
    vm = next((vm for vm in vms if vm.uid == claim.vm_uid), None)
    if vm is None:
        yield Finding("Inconsistent", claim.name, "the claim is Ready, and its VM is gone or has another claim")
    elif vm.state is WarmState.ALLOCATING and not _is_late(vm, now):
        return  # the controller writes the label in a moment
    elif vm.state is not WarmState.IN_USE:
        message = f"the claim is Ready, and its VM {vm.name} is {vm.state or 'in no state'}"
        yield Finding("Inconsistent", claim.name, message)


def _is_late(vm: WarmVM, now: datetime) -> bool:
    return seconds_since(vm.state_since, now) > MAX_RESERVATION_SECONDS
