"""The VirtualMachineInstance that a set creates: its template, and whose it is."""

from __future__ import annotations

import copy
from typing import Any

from controllers.replicaset.actions import Create
from controllers.replicaset.instance import KIND
from controllers.replicaset.snapshot import ReplicaSet
from kinds import meta

Json = dict[str, Any]


def owner(replica_set: ReplicaSet) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": KIND,
        "name": replica_set.name,
        "uid": replica_set.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def build_vmi(replica_set: ReplicaSet, action: Create) -> Json:
    template = copy.deepcopy(replica_set.spec.template)
    given = template.get("metadata") or {}
    annotations = {key: value for key, value in (given.get("annotations") or {}).items() if key != meta.ATTEMPT}
    if action.attempt:
        annotations[meta.ATTEMPT] = str(action.attempt)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "namespace": replica_set.namespace,
            "name": action.name,
            "labels": given.get("labels") or {},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner(replica_set)],
        },
        "spec": template.get("spec") or {},
    }
