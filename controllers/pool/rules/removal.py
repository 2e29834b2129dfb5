"""The rule that deletes the VMs that a client has named in the annotation poolhouse.dev/remove-vms.

An autoscaler of nodes drains one node and then needs exactly the VM of this node deleted. Scale-in can choose another
VM, for example while the VM is the last available one. So a named VM does not count as a replica from the write that
names it, and the pool deletes no other VM in its place, however long a gate or a lifecycle hook delays the deletion.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from controllers.pool.gates.disruptions import Disruption
from controllers.pool.rules.rule import Rule
from controllers.pool.rules.scale_in import deletion
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.waiting import Waiting
from poolhouse.api.kinds import meta


def remove(snapshot: PoolSnapshot, now: datetime) -> Iterator[Disruption | Waiting]:
    for vm in snapshot.removed:
        if vm.protected:
            yield Waiting(vm.name, f"{meta.SCALE_IN} protects it")
        else:
            yield Disruption(vm, "ScaleIn", partial(deletion, snapshot, vm, f"{meta.REMOVE_VMS} names it"))


REMOVAL = Rule(remove, context=f"{meta.REMOVE_VMS} names it: ", in_bursts=True)
