"""Names in objects: labels, annotations, finalizers, field managers, namespaces.

Poolhouse's are under `poolhouse.dev/`. A few of KubeVirt's that several rooms read are here too.
"""

from collections.abc import Mapping
from typing import Any

DOMAIN = "poolhouse.dev"
NAMESPACE = "poolhouse-system"
FIELD_MANAGER = "poolhouse"

# The pool of a VM; also in its VMI template, so that VMIs and launcher pods match the scale selector.
POOL = f"{DOMAIN}/pool"
WARM_POOL = f"{DOMAIN}/warm-pool"
REVISION = f"{DOMAIN}/revision"
ORDINAL = f"{DOMAIN}/ordinal"

# Retained disks carry the UID of their pool; only this pool may reuse them.
KEEP_DISKS = f"{DOMAIN}/keep-disks"
KEPT_BY = f"{DOMAIN}/kept-by"
KEPT_FOR = f"{DOMAIN}/kept-for"

# On a VMI of a replica set: how many of its predecessors ended early.
ATTEMPT = f"{DOMAIN}/attempt"

# The label that disables defaulting for an object or a namespace, and the annotation of a VM that was not defaulted.
DEFAULTING = f"{DOMAIN}/defaulting"
DISABLED = "disabled"
UNDEFAULTED = f"{DOMAIN}/undefaulted"

# On a VM: scale-in never chooses it (`Protect`) or chooses it first (`First`).
SCALE_IN = f"{DOMAIN}/scale-in"

# Labels of warm VMs. They are the only record of its state, so only Poolhouse's ServiceAccounts may write them.
WARM_STATE = f"{DOMAIN}/warm-state"
POOL_UID = f"{DOMAIN}/pool-uid"
CLAIM_UID = f"{DOMAIN}/claim-uid"
TEMPLATE_HASH = f"{DOMAIN}/template-hash"
PLACEMENT = f"{DOMAIN}/placement"
STANDBY = f"{DOMAIN}/standby"
ORPHANED = f"{DOMAIN}/orphaned"
INSTANCE_TYPE = f"{DOMAIN}/instance-type"
IMAGE_ID = f"{DOMAIN}/image-id"
REQUESTER = f"{DOMAIN}/requester"
# A Secret that a warm pool's template names in an access credential. Each VM gets its own, named with the VM's postfix:
# empty while the VM waits, with the keys of the claim's user after the handover.
CLAIM_KEY = "poolhouse-claim-key"
# Annotations of a warm VM: its claim, times, and what a restarted controller must know.
CLAIM_NAME = f"{DOMAIN}/claim-name"
ACTIVATED_AT = f"{DOMAIN}/activated-at"
STATE_SINCE = f"{DOMAIN}/state-since"
STATE_REASON = f"{DOMAIN}/state-reason"
CHECK_FAILURES = f"{DOMAIN}/check-failures"

# The winning migration policy of a VMI, by which KubeVirt's own policy selects it.
MIGRATION_POLICY = f"{DOMAIN}/migration-policy"

# Only Poolhouse's ServiceAccounts may write these; see manifests/admission_policy.py.
PROTECTED_LABELS = (WARM_STATE, POOL_UID, CLAIM_UID, MIGRATION_POLICY)

# Simulated faults: annotations on a VM or its VMI template, or keys of this ConfigMap.
SIMULATION = "simulation"
SIM_PREFIX = f"sim.{DOMAIN}/"
NODE_LOST = f"{SIM_PREFIX}lost"

# Secrets in Poolhouse's namespace: the CA, and the serving certificate.
CA_SECRET = "poolhouse-authorities"
SERVING_SECRET = "poolhouse-serving"

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
POOLHOUSE = "poolhouse"

# KubeVirt's.
KUBEVIRT_OPERATORS = ("virt-operator", "kubevirt-operator")
"""value of `MANAGED_BY` on objects that KubeVirt's operator installs; the second is an older name"""
KUBEVIRT_DRAIN_TAINT = "kubevirt.io/drain"
KUBEVIRT_NODE_NAME = "kubevirt.io/nodeName"


def is_installed_by_us(found: Mapping[str, Any]) -> bool:
    """Whether Poolhouse installed the CRD, and KubeVirt's operator has not taken it over."""
    labels = found.get("metadata", {}).get("labels") or {}
    return labels.get(PART_OF) == POOLHOUSE and labels.get(MANAGED_BY) not in KUBEVIRT_OPERATORS
