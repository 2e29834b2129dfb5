"""Priority levels of the API server for the requests of Poolhouse (API Priority and Fairness).

The webhook and the controllers get a level of their own, so that Poolhouse and other clients do not delay each other.
In it, namespaces take turns.
"""

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.resource_types import CLAIMS, ResourceType
from poolhouse.manifests import rbac

GROUP = "flowcontrol.apiserver.k8s.io"
API_VERSION = f"{GROUP}/v1"
SHARES = 20
"""concurrency shares; the level of all other ServiceAccounts has 100"""
LEADER_ELECTION = "leader-election"
WORKLOAD_LOW = "workload-low"
"""levels that every API server has"""
CONTROLLERS = f"{meta.POOLHOUSE}-controllers"
EVERYTHING: Json = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
WRITES: Json = {
    "verbs": ["create", "update", "patch", "delete"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "namespaces": ["*"],
}


def _writes(*kinds: ResourceType) -> Json:
    groups, resources = {kind.group for kind in kinds}, {kind.plural for kind in kinds}
    return {**WRITES, "apiGroups": sorted(groups), "resources": sorted(resources)}


TENANTS: tuple[tuple[str, Json], ...] = (
    # The deletion of a collection takes its place until the last object is deleted, which may be minutes.
    (f"{meta.POOLHOUSE}-collections", {**WRITES, "verbs": ["deletecollection"]}),
    # Admission creates a VM of each changed template in a dry run, which takes as long as three other writes.
    (f"{meta.POOLHOUSE}-pools", _writes(*(kind for kind in KINDS if kind.templates))),
    # Users wait for claims. In the level of pools, claims would wait for these dry runs.
    (f"{meta.POOLHOUSE}-claims", _writes(CLAIMS)),
    (f"{meta.POOLHOUSE}-clients", WRITES),
    # No `get`: the API server counts an open console or VNC connection as one, until it ends.
    (f"{meta.POOLHOUSE}-lists", {**WRITES, "verbs": ["list"]}),
)
"""Priority levels for the requests of tenants, and the rules of their FlowSchemas. The first rule that matches counts.
Each level has one share, which on two cores is one request at once."""
ALONE = {"lendablePercent": 0, "borrowingLimitPercent": 0}
"""of a level whose limit is the same whatever the other levels do"""


def manifests(shares: int = SHARES) -> list[Json]:
    """The priority level, FlowSchemas that lead to it, and a FlowSchema for the Lease of the controllers."""
    lease: Json = {
        "verbs": ["get", "create", "update", "patch"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": [meta.NAMESPACE],
    }
    # Other levels may borrow half of the unused concurrency.
    level = _level(meta.POOLHOUSE, nominalConcurrencyShares=shares, lendablePercent=50)
    return [
        level,
        # The requests of the webhook do not queue behind those of the controllers.
        _schema(meta.POOLHOUSE, 8000, meta.POOLHOUSE, "ByUser", EVERYTHING, _account("webhook")),
        # A namespace whose pools need many requests does not delay the others.
        _schema(CONTROLLERS, 8000, meta.POOLHOUSE, "ByNamespace", EVERYTHING, _account("controllers")),
        # The controllers' own requests must not delay the renewal of their Lease.
        _schema("poolhouse-leases", 7900, LEADER_ELECTION, "ByUser", lease, _account("controllers")),
    ]


def for_one_machine() -> list[Json]:
    """`manifests` for an API server that accepts more requests than its machine can process at once.

    Poolhouse gets few requests at once, and all tenants together get fewer for each row of `TENANTS`, in which
    namespaces take turns. A client that sends its body slowly holds a place all the same, which no level prevents. The
    engine, which stands for KubeVirt, and cluster-admins have no such limit.
    """
    level, *schemas = manifests()
    level["spec"]["limited"] |= {"nominalConcurrencyShares": 4, **ALONE}
    engine = _schema("poolhouse-engine", 8000, WORKLOAD_LOW, "ByUser", EVERYTHING, _account("engine"))
    tenants = {"kind": "Group", "group": {"name": "system:authenticated"}}
    return [level, *schemas, engine] + [
        document
        for precedence, (name, rule) in enumerate(TENANTS, start=8800)
        for document in (
            _level(name, nominalConcurrencyShares=1, **ALONE),
            _schema(name, precedence, name, "ByNamespace", rule, tenants),
        )
    ]


def _level(name: str, **concurrency: int) -> Json:
    # A flow has one queue, and each queue has its turn. With more queues for a flow, a namespace with many requests
    # would have more turns.
    queuing = {"queues": 1024, "handSize": 1, "queueLengthLimit": 300}
    limited = {**concurrency, "limitResponse": {"type": "Queue", "queuing": queuing}}
    return _document("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def _account(service: str) -> Json:
    account = {"name": rbac.account_name(service), "namespace": meta.NAMESPACE}
    return {"kind": "ServiceAccount", "serviceAccount": account}


def _schema(name: str, precedence: int, level: str, distinguisher: str, rule: Json, subject: Json) -> Json:
    """Among FlowSchemas that match a request, the one with the lowest precedence counts. Those of Kubernetes for
    ServiceAccounts and users have 9000 and 9900."""
    spec = {
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": level},
        "distinguisherMethod": {"type": distinguisher},
        "rules": [{"subjects": [subject], "resourceRules": [rule]}],
    }
    return _document("FlowSchema", name, spec)


def _document(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "labels": {meta.PART_OF: meta.POOLHOUSE}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
