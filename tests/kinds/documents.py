"""Pools for tests. A test gives only the fields that matter to it."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

from poolhouse.api.kinds.resource_types import POOLS
from tests.builders import manifest, vm_spec, vmi_spec

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent.parent


def machine(**spec: Any) -> Json:
    """A VirtualMachine's spec with a disk of its own and a network."""
    disks = [{"metadata": {"name": "root"}, "spec": {"pvc": {}}}]
    vmi = vmi_spec({"root": {"dataVolume": {"name": "root"}}}, ["default"])
    return {**vm_spec(vmi, running=True, dataVolumeTemplates=disks), **spec}


def pool(name: str = "my-vm-pool", **spec: Any) -> Json:
    """A right pool, but for the fields of the spec that are given."""
    return manifest(POOLS, name, {"replicas": 3, "template": {"spec": machine()}, **spec}, "default")


def changed(document: Json, value: Any, *path: str | int) -> Json:
    """A copy with one value set, or taken away where the value is `GONE`."""
    found = copy.deepcopy(document)
    here: Any = found
    for key in path[:-1]:
        here = here[key]
    if value is GONE:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return found


GONE = object()
INSTANCE = ("spec", "template", "spec", "template", "spec")

EXAMPLE = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachinePool
metadata:
  name: my-vm-pool
spec:
  replicas: 100
  maxUnavailable: 10
  scaleInStrategy:
    proactive:
      statePreservation: Offline
      selectionPolicy:
        basePolicy: "Oldest"
  updateStrategy:
    proactive:
      selectionPolicy:
        basePolicy: "Oldest"
  template:
    spec:
      dataVolumeTemplates:
      - metadata:
          name: alpine-dv
        spec:
          pvc:
            accessModes:
            - ReadWriteOnce
            resources:
              requests:
                storage: 2Gi
          source:
            http:
              url: http://cdi-http-import-server.kubevirt/images/alpine.iso
      running: false
      template:
        spec:
          domain:
            devices:
              disks:
              - disk:
                  bus: virtio
                name: datavolumedisk
          terminationGracePeriodSeconds: 0
          volumes:
          - dataVolume:
              name: alpine-dv
            name: datavolumedisk
"""
PROACTIVE = re.search(r"  scaleInStrategy:.*?(?=  template:)", EXAMPLE, re.S)
assert PROACTIVE is not None
STRATEGIES = PROACTIVE.group()

BY_HAND = EXAMPLE.replace("replicas: 100\n  maxUnavailable: 10", "replica: 100").replace(
    STRATEGIES, "  scaleInStrategy:\n    unmanaged: {}\n  updateStrategy:\n    unmanaged: {}\n"
)
ORDERED = EXAMPLE.replace(
    '        basePolicy: "Oldest"\n  updateStrategy',
    "        orderedPolicies:\n          - labelSelector\n            - non-important-vms\n"
    '        basePolicy: "Oldest"\n  updateStrategy',
)


def read(text: str) -> Json:
    found: Json = yaml.safe_load(text)
    return found
