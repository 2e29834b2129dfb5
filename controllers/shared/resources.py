"""Resources of Kubernetes and CDI that several controllers read or write."""

from __future__ import annotations

from runtime.resource import Resource

DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume")
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
