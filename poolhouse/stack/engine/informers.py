"""The informers of the engine, and the fault injection settings of the objects."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from defaulter.contract import opted_out
from poolhouse.api.kinds.meta import NAMESPACE, SIMULATION
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.api import Api
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import CONFIG_MAPS, KUBEVIRTS, NAMESPACES, NODES, PODS, PVCS, VMIS, VMS
from poolhouse.stack.engine import disk_objects, objects
from poolhouse.stack.engine.api_object import Pairs
from poolhouse.stack.engine.disk_objects import PVC, DataVolume, Restore, Snapshot, SnapshotContent
from poolhouse.stack.engine.fault_injection import Faults, parse_faults
from poolhouse.stack.engine.objects import VM, VMI, Launcher, Migration, Node
from poolhouse.stack.engine.resources import (
    DATA_VOLUMES,
    LAUNCHER_LABEL,
    MIGRATIONS,
    RESTORES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Informers:
    def __init__(self, api: Api, now: Callable[[], datetime] = utc_now) -> None:
        self.now = now
        self.vms: Informer[VM] = Informer(
            api, VMS, objects.read_vm, indexes={"pvc": _pvcs_of_vm, "uid": lambda vm: [vm.uid]}
        )
        self.vmis: Informer[VMI] = Informer(
            api, VMIS, objects.read_vmi, indexes={"node": _node_of, "pvc": _pvcs_of_vmi, "uid": lambda vmi: [vmi.uid]}
        )
        self.data_volumes: Informer[DataVolume] = Informer(api, DATA_VOLUMES, disk_objects.read_data_volume)
        self.pvcs: Informer[PVC] = Informer(api, PVCS, disk_objects.read_pvc)
        self.nodes: Informer[Node] = Informer(api, NODES, objects.read_node)
        self.migrations: Informer[Migration] = Informer(
            api, MIGRATIONS, objects.read_migration, indexes={"vmi": lambda each: [(each.namespace, each.vmi)]}
        )
        self.snapshots: Informer[Snapshot] = Informer(
            api, SNAPSHOTS, disk_objects.read_snapshot, indexes={"vm": lambda each: [(each.namespace, each.vm)]}
        )
        self.snapshot_contents: Informer[SnapshotContent] = Informer(
            api, SNAPSHOT_CONTENTS, disk_objects.read_snapshot_content
        )
        self.restores: Informer[Restore] = Informer(
            api, RESTORES, disk_objects.read_restore, indexes={"vm": lambda each: [(each.namespace, each.vm)]}
        )
        self.launchers: Informer[Launcher] = Informer(
            api,
            PODS,
            objects.read_launcher,
            label_selector=f"{LAUNCHER_LABEL}=virt-launcher",
            indexes={"vmi": lambda pod: [pod.vmi]},
        )
        # Whether each namespace has opted out of hardware defaults.
        self.namespaces: Informer[bool] = Informer(api, NAMESPACES, opted_out)
        self.kubevirts: Informer[ClusterSettings] = Informer(api, KUBEVIRTS, ClusterSettings.of)
        self.settings: Informer[Pairs] = Informer(
            api, CONFIG_MAPS, lambda document: objects.read_config_map(document, SIMULATION), namespace=NAMESPACE
        )

    @property
    def all(self) -> tuple[Informer[object], ...]:
        watched = (self.vms, self.vmis, self.data_volumes, self.pvcs, self.nodes, self.migrations, self.launchers)
        snapshots = (self.snapshots, self.snapshot_contents, self.restores)
        return (*watched, *snapshots, self.namespaces, self.kubevirts, self.settings)  # type: ignore[return-value]

    def cluster_settings(self) -> ClusterSettings:
        """Returns the settings of the KubeVirt object, of which a cluster has one."""
        return next(iter(self.kubevirts.store.all()), ClusterSettings())

    async def synced(self) -> None:
        await asyncio.gather(*(informer.synced() for informer in self.all))

    def not_synced(self) -> dict[str, str]:
        """Returns the problem of each informer that is not synced, by resource."""
        return {each.resource.plural: each.problem or "not listed" for each in self.all if not each.is_synced}

    def faults(self, *layers: Pairs) -> tuple[Faults, tuple[str, ...]]:
        """Returns the faults of the ConfigMap and the layers, and a message for each invalid setting. The ConfigMap has
        the lowest precedence, the last layer the highest."""
        return parse_faults([self.settings.store.get((NAMESPACE, SIMULATION)) or (), *layers])

    def faults_of(self, vmi: VMI) -> tuple[Faults, tuple[str, ...]]:
        """Returns the faults of a VMI. Annotations of its VM take precedence, because users can change these later."""
        vm = self.vm_of(vmi.controller_uid)
        return self.faults(vmi.faults, vm.faults if vm is not None else ())

    def vm_of(self, controller_uid: str) -> VM | None:
        return self.vms.store.first("uid", controller_uid) if controller_uid else None


def _pvcs_of_vm(vm: VM) -> list[tuple[str, str]]:
    return [(vm.namespace, name) for name in {*vm.data_volume_templates, *(volume.pvc for volume in vm.volumes)}]


def _pvcs_of_vmi(vmi: VMI) -> list[tuple[str, str]]:
    return [(vmi.namespace, volume.pvc) for volume in vmi.volumes]


def _node_of(vmi: VMI) -> list[str]:
    """Returns the index keys of a VMI: its node's name, which is empty before the VMI is scheduled."""
    return [] if vmi.final else [vmi.node]
