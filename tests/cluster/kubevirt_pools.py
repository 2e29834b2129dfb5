"""A CustomResourceDefinition of `pool.kubevirt.io`, with the fields that KubeVirt 1.9's pools have."""

from __future__ import annotations

from typing import Any

from controllers.pool.kubevirt_pools import KUBEVIRT_POOLS

Json = dict[str, Any]

TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
TIME = {"type": "string", "format": "date-time", "nullable": True}
NUMBER = {"type": "integer", "format": "int32"}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fields(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def items(item: Json) -> Json:
    return {"type": "array", "items": item}


def one_of(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


REQUIREMENTS = items(fields(("key", "operator"), key=TEXT, operator=TEXT, values=items(TEXT)))
LABELS = fields(matchExpressions=REQUIREMENTS, matchLabels={"type": "object", "additionalProperties": TEXT})
SELECTION = fields(
    selectors=fields(labelSelector=LABELS, nodeSelectorRequirementMatcher=REQUIREMENTS),
    sortPolicy=one_of("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"),
)
STATE = one_of("Disabled", "Offline", "Online")
SPEC = fields(
    ("selector", "virtualMachineTemplate"),
    autohealing=fields(minFailingToStartDuration=TEXT, startUpFailureThreshold={**NUMBER, "minimum": 1}),
    maxUnavailable={"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    nameGeneration=fields(appendIndexToConfigMapRefs=FLAG, appendIndexToSecretRefs=FLAG),
    paused=FLAG,
    replicas={**NUMBER, "minimum": 0},
    scaleInStrategy=fields(
        opportunistic=fields(statePreservation=STATE),
        proactive=fields(selectionPolicy=SELECTION, statePreservation=STATE),
        unmanaged=fields(),
    ),
    selector=LABELS,
    updateStrategy=fields(opportunistic=fields(), proactive=fields(selectionPolicy=SELECTION), unmanaged=fields()),
    virtualMachineTemplate=fields(metadata={**ANYTHING, "nullable": True}, spec=ANYTHING),
)
CONDITION = fields(
    ("status", "type"), lastProbeTime=TIME, lastTransitionTime=TIME, message=TEXT, reason=TEXT, status=TEXT, type=TEXT
)
STATUS = fields(conditions=items(CONDITION), labelSelector=TEXT, readyReplicas=NUMBER, replicas=NUMBER)


def version(name: str) -> Json:
    return {
        "name": name,
        "served": True,
        "storage": name == KUBEVIRT_POOLS.version,
        "schema": {"openAPIV3Schema": fields(("spec",), spec=SPEC, status=STATUS)},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        },
    }


CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{KUBEVIRT_POOLS.plural}.{KUBEVIRT_POOLS.group}"},
    "spec": {
        "group": KUBEVIRT_POOLS.group,
        "scope": "Namespaced",
        "names": {
            "plural": KUBEVIRT_POOLS.plural,
            "singular": "virtualmachinepool",
            "kind": KUBEVIRT_POOLS.kind,
            "shortNames": ["vmpool", "vmpools"],
            "categories": ["all"],
        },
        "versions": [version("v1alpha1"), version("v1beta1")],
    },
}
