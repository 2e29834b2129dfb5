"""What the engine reads and writes, and the names that it writes into it."""

from __future__ import annotations

from kinds.kubevirt import DATA_VOLUME, INSTANCE, KUBEVIRT, MACHINE, MIGRATION, UPSTREAM_POLICY
from runtime.resource import Resource

MACHINES = Resource.of(MACHINE)
INSTANCES = Resource.of(INSTANCE)
MIGRATIONS = Resource.of(MIGRATION)
DATA_VOLUMES = Resource.of(DATA_VOLUME)
POLICIES = Resource.of(UPSTREAM_POLICY)
KUBEVIRTS = Resource.of(KUBEVIRT)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")

# KubeVirt's.
MACHINE_FINALIZER = "kubevirt.io/virtualMachineControllerFinalize"
INSTANCE_FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
NODE_LABEL = "kubevirt.io/nodeName"
SCHEDULABLE = "kubevirt.io/schedulable"
EVACUATES = "kubevirt.io/evacuationMigration"
GENERATION = "kubevirt.io/vm-generation"

# Ours: which template a VMI was made from, so that a change of the VM's shows as RestartRequired.
TEMPLATE = "local.poolhouse.dev/template"
# On a claim: what its disk is filled with, when that is not what was asked for.
CONTENT = "local.poolhouse.dev/content"
TINY = "tiny"
