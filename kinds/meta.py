"""Every name that we write into objects: labels, annotations, finalizers, field managers, namespaces.

Ours are under `poolhouse.dev/`; the few of KubeVirt's and CDI's that several rooms read are here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOMAIN = "poolhouse.dev"
NAMESPACE = "poolhouse-system"
FIELD_MANAGER = "poolhouse"

# Membership, on VMs and on their VMI templates, so that VMIs and launcher pods match the scale selector.
POOL = f"{DOMAIN}/pool"
WARM_POOL = f"{DOMAIN}/warm-pool"
REVISION = f"{DOMAIN}/revision"
ORDINAL = f"{DOMAIN}/ordinal"

# Disks that outlive their VM carry the UID of the pool that kept them; nobody else may take them.
KEEP_DISKS = f"{DOMAIN}/keep-disks"
KEPT_BY = f"{DOMAIN}/kept-by"
KEPT_FOR = f"{DOMAIN}/kept-for"

# On a replica set's instance: how many before it, one replacing the other, ended early.
ATTEMPT = f"{DOMAIN}/attempt"

# Defaulting: opted out of by label on the object or its namespace; a VM that missed it says why until it is complete.
DEFAULTING = f"{DOMAIN}/defaulting"
DISABLED = "disabled"
UNDEFAULTED = f"{DOMAIN}/undefaulted"

# On a VM: `Protect` keeps it from being chosen by scale-in, `First` has it chosen first.
SCALE_IN = f"{DOMAIN}/scale-in"

# Warm pools. These labels are the only truth about a warm VM, so only our ServiceAccounts may write them.
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
# The Secret that a warm pool's template names in an access credential for each VM to get one of its own, which ends as
# the VM's name does: empty while it waits, and with the claimant's keys from the hand-over on.
CLAIM_KEY = "poolhouse-claim-key"
# Annotations of a warm VM: who has it, since when, and what must not be forgotten when a controller restarts.
CLAIM_NAME = f"{DOMAIN}/claim-name"
ACTIVATED_AT = f"{DOMAIN}/activated-at"
STATE_SINCE = f"{DOMAIN}/state-since"
STATE_REASON = f"{DOMAIN}/state-reason"
CHECK_FAILURES = f"{DOMAIN}/check-failures"

# The winner among migration policies, stamped on the VMI for KubeVirt's own policy to select.
MIGRATION_POLICY = f"{DOMAIN}/migration-policy"

# Written only by our ServiceAccounts; an admission policy refuses them from everybody else.
PROTECTED_LABELS = (WARM_STATE, POOL_UID, CLAIM_UID, MIGRATION_POLICY)

# Faults that the embedded engine simulates: annotations on a VM or its VMI template, or keys of the ConfigMap.
SIMULATION = "simulation"
SIM_PREFIX = f"sim.{DOMAIN}/"
NODE_LOST = f"{SIM_PREFIX}lost"

# Secrets in our own namespace: who signs, and what our servers show.
CA_SECRET = "poolhouse-authorities"
SERVING_SECRET = "poolhouse-serving"

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
POOLHOUSE = "poolhouse"

# KubeVirt's.
KUBEVIRT_OPERATORS = ("virt-operator", "kubevirt-operator")
"""what `MANAGED_BY` says of whatever KubeVirt's operator has installed, by its present name and by an older one"""
KUBEVIRT_DRAIN_TAINT = "kubevirt.io/drain"
KUBEVIRT_NODE_NAME = "kubevirt.io/nodeName"


def is_installed_by_us(found: Mapping[str, Any]) -> bool:
    """Whether a CRD that the cluster has is one that we put there, and nobody has taken over."""
    labels = found.get("metadata", {}).get("labels") or {}
    return labels.get(PART_OF) == POOLHOUSE and labels.get(MANAGED_BY) not in KUBEVIRT_OPERATORS
