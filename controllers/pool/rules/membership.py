"""The rule about which VMs belong to a pool."""

from collections.abc import Iterator
from datetime import datetime

from controllers.pool.actions import Action, Adopt
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.rule import Plan, Rule
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.conditions import condition, join_names
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.metav1 import Condition


def adopt(snapshot: PoolSnapshot, now: datetime) -> Iterator[Action]:
    for vm in snapshot.active:
        if not vm.adopted:
            yield Adopt(vm.name, vm.uid, "its owner reference to the pool lacks controller: true")


def _conditions(snapshot: PoolSnapshot, plan: Plan, now: datetime) -> Iterator[Condition]:
    if not snapshot.unowned:
        yield condition("UnownedVMs", False, PoolReason.NO_UNOWNED_VMS)
        return
    message = (
        f"{join_names(snapshot.unowned)}: the name and the label of this pool, but no owner. The pool neither counts"
        " nor changes them, and Services may select them. `poolhouse attach` takes them into the pool; without the"
        f" label {meta.POOL} they are VMs of their own"
    )
    yield condition("UnownedVMs", True, PoolReason.NO_OWNER, message)


MEMBERSHIP = Rule(steps=(adopt,), conditions=_conditions)
