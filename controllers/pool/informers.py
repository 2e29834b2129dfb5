"""The informers of the objects that pools need, the stores that they fill, and who handles their events."""

from functools import partial

from controllers.pool.changes import Enqueue, PoolChanges
from controllers.pool.cluster import Cluster
from controllers.pool.data_volumes import DiskInformers
from controllers.pool.instancetypes import KnownInstancetypes
from controllers.pool.known_revisions import REVISION_SOURCE, KnownRevisions
from controllers.pool.sources import DISK_SOURCE, POOL_SOURCE, VM_SOURCE, VMI_SOURCE
from controllers.pool.stores import Stores
from controllers.pool.vm_snapshots import RESTORE_SOURCE, SNAPSHOT_SOURCE, SnapshotStores
from controllers.shared.component import ControllerContext
from controllers.shared.sources import NODE_SOURCE, key_of


class Informers:
    def __init__(self, context: ControllerContext) -> None:
        api = context.api
        self.pools, self.vms, self.vmis = POOL_SOURCE.informer(api), VM_SOURCE.informer(api), VMI_SOURCE.informer(api)
        self.revisions, self.disks = REVISION_SOURCE.informer(api), DISK_SOURCE.informer(api)
        self.nodes, self.owned_disks = NODE_SOURCE.informer(api), DiskInformers(api)
        self.required = self.pools, self.vms, self.revisions, self.vmis, self.disks, self.owned_disks.claims, self.nodes
        # What the cluster may not serve.
        self.snapshots, self.restores = SNAPSHOT_SOURCE.optional_informer(api), RESTORE_SOURCE.optional_informer(api)
        self.data_sources, self.kubevirts, self.budgets = context.data_sources, context.kubevirts, context.budgets
        unshared = self.snapshots, self.restores, self.owned_disks.data_volumes
        self.optional = *unshared, self.data_sources, self.kubevirts, self.budgets
        self.stores = Stores(
            self.pools.store,
            self.vms.store,
            KnownRevisions(self.revisions.store, context.image_sources),
            self.vmis.store,
            self.disks.store,
            SnapshotStores(self.snapshots, self.restores),
            Cluster(self.nodes.store, context.cluster_settings, self.budgets, context.replica_limit),
            disk_state=self.owned_disks.state,
            owned_disks=self.owned_disks.owned,
            lists_data_volumes=self.owned_disks.lists_data_volumes,
            instancetypes=KnownInstancetypes.of(api),
        )

    def subscribe(self, changes: PoolChanges, enqueue: Enqueue) -> None:
        self.pools.subscribe(partial(changes.pool_changed, enqueue))
        self.vms.subscribe(partial(changes.vm_changed, enqueue))
        self.vmis.subscribe(partial(changes.vmi_changed, enqueue))
        self.nodes.subscribe(partial(changes.node_changed, enqueue))
        self.revisions.subscribe(partial(changes.revision_changed, enqueue))
        self.disks.subscribe(partial(changes.disk_changed, enqueue))
        self.snapshots.subscribe_served(partial(changes.snapshots_served, enqueue))
        self.snapshots.subscribe_objects(partial(changes.snapshot_changed, enqueue))
        self.restores.subscribe_objects(partial(changes.restore_changed, enqueue))
        self.budgets.subscribe_objects(partial(changes.budget_changed, enqueue))
        self.data_sources.subscribe_served(partial(changes.data_sources_served, enqueue))
        self.data_sources.subscribe_objects(lambda *found: changes.data_source_changed(enqueue, key_of(*found)))
        self.owned_disks.data_volumes.subscribe_served(partial(changes.data_volumes_served, enqueue))
        self.owned_disks.subscribe(lambda key, freed: changes.data_volume_changed(enqueue, key, freed=freed))
        self.kubevirts.subscribe(partial(changes.cluster_changed, enqueue))
