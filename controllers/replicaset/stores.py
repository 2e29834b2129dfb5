"""What a set's plans are made from: which objects are read, and by what they are found."""

from __future__ import annotations

from dataclasses import dataclass, field

from controllers.replicaset.instance import VMI, by_orphanage, by_owner, by_stem, parse_vmi
from controllers.replicaset.snapshot import InvalidSpec, ReplicaSet, by_namespace, parse_replica_set
from runtime.api import Api
from runtime.informer import Informer
from runtime.resource import Resource
from runtime.store import Store

REPLICA_SETS = Resource("kubevirt.io", "v1", "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet")
VMIS = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance")

SET_INDEXES = {"namespace": by_namespace}
INSTANCE_INDEXES = {"owner": by_owner, "orphanage": by_orphanage, "stem": by_stem}


def set_informer(api: Api) -> Informer[ReplicaSet | InvalidSpec]:
    return Informer(api, REPLICA_SETS, parse_replica_set, indexes=SET_INDEXES)


def instance_informer(api: Api) -> Informer[VMI]:
    return Informer(api, VMIS, parse_vmi, indexes=INSTANCE_INDEXES)


@dataclass(frozen=True)
class Stores:
    """All that was seen. Made without arguments, it is empty."""

    sets: Store[ReplicaSet | InvalidSpec] = field(default_factory=lambda: Store(SET_INDEXES))
    instances: Store[VMI] = field(default_factory=lambda: Store(INSTANCE_INDEXES))

    def adopters(self, i: VMI) -> list[ReplicaSet]:
        """Sets that would take this orphan in. Selectors that overlap are their authors' affair; the first who comes
        has it."""
        near = self.sets.by("namespace", i.namespace)
        return [each for each in near if isinstance(each, ReplicaSet) and not each.deleting and each.selects(i)]
