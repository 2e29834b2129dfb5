"""What the engine reads and writes, and the names that it writes into it."""

from __future__ import annotations

from kinds.kubevirt import DATA_VOLUME, KUBEVIRT, UPSTREAM_POLICY, VM, VMI, VMI_MIGRATION
from runtime.resource import Resource

VMS = Resource.of(VM)
VMIS = Resource.of(VMI)
MIGRATIONS = Resource.of(VMI_MIGRATION)
DATA_VOLUMES = Resource.of(DATA_VOLUME)
MIGRATION_POLICIES = Resource.of(UPSTREAM_POLICY)
KUBEVIRTS = Resource.of(KUBEVIRT)
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

# KubeVirt's.
VM_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
VMI_FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
NODE_LABEL = "kubevirt.io/nodeName"
SCHEDULABLE_LABEL = "kubevirt.io/schedulable"
EVACUATION_ANNOTATION = "kubevirt.io/evacuationMigration"
GENERATION_ANNOTATION = "kubevirt.io/vm-generation"

# Ours: which template a VMI was made from, so that a change of the VM's shows as RestartRequired.
TEMPLATE_HASH_ANNOTATION = "local.poolhouse.dev/template"
# On a pvc: what its disk is filled with, when that is not what was asked for.
CONTENT_ANNOTATION = "local.poolhouse.dev/content"
BUILT_IN_GUEST = "tiny"
