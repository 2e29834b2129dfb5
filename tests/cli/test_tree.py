"""Trees of owners and owned objects, built from documents."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.cli.output import align_columns
from poolhouse.cli.tree import build_tree, draw


def thing(kind: str, name: str, *owners: Json, labels: Json | None = None, **rest: Any) -> Json:
    references = [
        {"kind": each["kind"], "name": each["metadata"]["name"], "uid": each["metadata"]["uid"], "controller": True}
        for each in owners
    ]
    metadata = {
        "name": name,
        "generation": 1,
        "uid": f"{kind}-{name}",
        "ownerReferences": references,
        "labels": labels or {},
    }
    return {"kind": kind, "metadata": metadata, **rest}


POOL = thing("VirtualMachinePool", "web", spec={"replicas": 2}, status={"readyReplicas": 2, "observedGeneration": 1})
VM1 = thing("VirtualMachine", "web-1", POOL, status={"printableStatus": "Running"})
VM2 = thing("VirtualMachine", "web-2", POOL, status={"printableStatus": "Stopped"})
VMI1 = thing("VirtualMachineInstance", "web-1", VM1, status={"phase": "Running", "nodeName": "node-1"})
DV1 = thing("DataVolume", "root-1", VM1, status={"phase": "Succeeded"})
PVC1 = thing("PersistentVolumeClaim", "root-1", DV1, spec={}, status={"phase": "Bound", "capacity": {"storage": "1Gi"}})
KEPT = thing(
    "PersistentVolumeClaim",
    "root-3",
    labels={meta.KEPT_BY: "VirtualMachinePool-web", meta.KEPT_FOR: "web-3"},
    status={"phase": "Bound"},
)
ALL = [PVC1, KEPT, DV1, VMI1, VM2, VM1, POOL]


def picture(objects: list[Json], kind: str, name: str) -> list[str]:
    found = build_tree(objects, kind, name)
    assert found is not None
    return list(align_columns([*draw(found)]))


def test_the_tree_of_a_vm_has_its_owner_and_its_objects() -> None:
    assert picture(ALL, "VirtualMachine", "web-1") == [
        "vpool/web                2 of 2 ready",
        "└── vm/web-1             Running",
        "    ├── vmi/web-1        Running on node-1",
        "    └── dv/root-1        Succeeded",
        "        └── pvc/root-1   Bound, 1Gi",
    ]


def test_the_tree_of_a_pool_has_its_vms_and_retained_disks() -> None:
    assert picture(ALL, "VirtualMachinePool", "web") == [
        "vpool/web                2 of 2 ready",
        "├── vm/web-1             Running",
        "│   ├── vmi/web-1        Running on node-1",
        "│   └── dv/root-1        Succeeded",
        "│       └── pvc/root-1   Bound, 1Gi",
        "├── vm/web-2             Stopped",
        "└── pvc/root-3           Bound, retained for web-3",
    ]


def test_an_owner_that_is_gone_is_named() -> None:
    assert picture([VM2], "VirtualMachine", "web-2") == [
        "vpool/web      it is gone, or may not be read",
        "└── vm/web-2   Stopped",
    ]


@pytest.mark.parametrize("name", ["web-9", ""])
def test_a_missing_object_has_no_tree(name: str) -> None:
    assert build_tree(ALL, "VirtualMachine", name) is None


def test_owners_in_a_circle_end_somewhere() -> None:
    a, b = thing("VirtualMachine", "a"), thing("VirtualMachine", "b")
    a, b = thing("VirtualMachine", "a", b), thing("VirtualMachine", "b", a)
    assert len(picture([a, b], "VirtualMachine", "a")) == 3
