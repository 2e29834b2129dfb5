"""Priority levels of the API server for the requests of Poolhouse (API Priority and Fairness).

The webhook and the controllers get a level of their own, so that Poolhouse and other clients do not delay each other.
"""

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.manifests import rbac

GROUP = "flowcontrol.apiserver.k8s.io"
API_VERSION = f"{GROUP}/v1"
SHARES = 20
"""concurrency shares; the level of all other ServiceAccounts has 100"""
LEADER_ELECTION = "leader-election"
"""a level that every API server has"""


def manifests(shares: int = SHARES) -> list[Json]:
    """The priority level, a FlowSchema that leads to it, and a FlowSchema for the Lease of the controllers."""
    everything: Json = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    lease: Json = {
        "verbs": ["get", "create", "update", "patch"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": [meta.NAMESPACE],
    }
    level = {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": shares,
            # Other levels may borrow half of the unused concurrency.
            "lendablePercent": 50,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 16, "handSize": 4, "queueLengthLimit": 100}},
        },
    }
    return [
        _document("PriorityLevelConfiguration", meta.POOLHOUSE, level),
        # Before the FlowSchema service-accounts, which has 9000.
        _schema(
            meta.POOLHOUSE,
            8000,
            meta.POOLHOUSE,
            {**everything, "namespaces": ["*"], "clusterScope": True},
            "webhook",
            "controllers",
        ),
        # The controllers' own requests must not delay the renewal of their Lease.
        _schema("poolhouse-leases", 7900, LEADER_ELECTION, lease, "controllers"),
    ]


def _schema(name: str, precedence: int, level: str, rule: Json, *services: str) -> Json:
    accounts = [{"name": rbac.account_name(service), "namespace": meta.NAMESPACE} for service in services]
    subjects = [{"kind": "ServiceAccount", "serviceAccount": account} for account in accounts]
    spec = {
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": level},
        # Requests of the webhook do not queue behind bursts of the controllers.
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "resourceRules": [rule]}],
    }
    return _document("FlowSchema", name, spec)


def _document(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
