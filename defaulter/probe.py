"""The VM that proves that libvirt works: the smallest with a disk, a NIC and all of KubeVirt's passes."""

from __future__ import annotations

import json

PROBE = json.dumps(
    {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "probe", "namespace": "poolhouse-system"},
        "spec": {
            "domain": {
                "memory": {"guest": "64Mi"},
                "devices": {
                    "disks": [{"name": "disk", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "disk", "emptyDisk": {"capacity": "1Mi"}}],
        },
    }
).encode()
