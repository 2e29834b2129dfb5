"""Names in objects: labels, annotations, finalizers, field managers, namespaces.

Poolhouse's names begin with `poolhouse.dev/`. Names of KubeVirt that several packages use are here too.
"""

from collections.abc import Mapping
from typing import Any

DOMAIN = "poolhouse.dev"
NAMESPACE = "poolhouse-system"
FIELD_MANAGER = "poolhouse"
CONTROLLERS = "poolhouse-controllers"
"""the user agent of the controllers, and so their name in `managedFields`"""
UID_LENGTH = 8
"""characters of a UID in `status.decisions`"""
DISKS_RETAINED = "; its disks are retained"
"""the end of a deletion's message in `status.decisions` if the disks stay; the note of its Event says so elsewhere"""

# Label with the pool of a VM. It is also in the VMI template, so that VMIs and pods match the scale selector.
POOL = f"{DOMAIN}/pool"
WARM_POOL = f"{DOMAIN}/warm-pool"
REVISION = f"{DOMAIN}/revision"
ORDINAL = f"{DOMAIN}/ordinal"
# On a pool that was imported from KubeVirt: "0", the number of its first VM; and the UID of the pool of KubeVirt, until
# the import is complete.
FIRST_ORDINAL = f"{DOMAIN}/first-ordinal"
IMPORTING = f"{DOMAIN}/importing"
# While an imported pool goes back to KubeVirt: on our pool, whether it was paused before; on the pool of KubeVirt, the
# UID of ours.
RETURNING = f"{DOMAIN}/returning"

# Retained disks carry the UID of their pool; only this pool may reuse them.
KEEP_DISKS = f"{DOMAIN}/keep-disks"
KEPT_BY = f"{DOMAIN}/kept-by"
KEPT_FOR = f"{DOMAIN}/kept-for"

# On a retained disk: when it was retained, and when a limit of the pool would have deleted it, but something used it.
RETAINED_AT = f"{DOMAIN}/retained-at"
USED_AT = f"{DOMAIN}/used-at"

# On a VM: from which entry of the pool's dataVolumeTemplates each disk was created, as `NAME=HASH,...`. On a retained
# disk: the hash.
DISK_TEMPLATES = f"{DOMAIN}/disk-templates"
DISK_TEMPLATE = f"{DOMAIN}/disk-template"
# On a VM: the disks that an update has replaced, as `DISK=HASH,...`, until they are retained. On a retained disk:
# `true` if an update has replaced it.
REPLACED_DISKS = f"{DOMAIN}/replaced-disks"
REPLACED = f"{DOMAIN}/replaced"

# On a ControllerRevision whose template has an alias or no machine type: the machine type that its new VMs get.
MACHINE_TYPE = f"{DOMAIN}/machine-type"

# On a VM: the fields that updates may have left, because the revision of its former template was gone, as `PATH,...`.
LEFT_FIELDS = f"{DOMAIN}/left-fields"

# On a VM: when its pool last wrote a change that KubeVirt may apply to the running VM.
LIVE_UPDATE_SINCE = f"{DOMAIN}/live-update-since"

# On a VMI of a replica set: the number of its predecessors that ended early.
ATTEMPT = f"{DOMAIN}/attempt"

# The label that disables defaulting for an object or a namespace, and the annotation of a VM that was not defaulted.
DEFAULTING = f"{DOMAIN}/defaulting"
DISABLED = "disabled"
UNDEFAULTED = f"{DOMAIN}/undefaulted"
# On a namespace: "true" refuses VMs that cannot get their hardware defaults.
STRICT_DEFAULTING = f"{DOMAIN}/strict-defaulting"
# The annotation with the record of defaults, which the defaulter writes and reads.
DEFAULTED_FIELDS = f"{DOMAIN}/defaulted-fields"

# On a pool: how far a user has promoted the update, as `REVISION=STEPS`.
PROMOTE = f"{DOMAIN}/promote"
# On a pool: the revision whose update a user has aborted, and the time of the abort that a user has taken back.
ABORT = f"{DOMAIN}/abort"
RETRY = f"{DOMAIN}/retry"
# On a pool: the revision whose snapshots a user restores, as `REVISION=TIME`. On a VM: the request whose restore has
# begun, with the VM's run strategy before the restore, which stops the VM; and the request that is done.
RESTORE = f"{DOMAIN}/restore-snapshots"
RUN_STRATEGY = f"{DOMAIN}/run-strategy"
RESTORED = f"{DOMAIN}/restored"
# On a VM: the number of updates before which the pool took a snapshot. On a snapshot: the number of the update.
UPDATES = f"{DOMAIN}/updates"
# Labels of a VirtualMachineSnapshot or a VirtualMachineRestore: the VM.
VM = f"{DOMAIN}/vm"
VM_UID = f"{DOMAIN}/vm-uid"
# On a namespace: the most replicas of one of its pools, warm pools and replica sets.
MAX_REPLICAS = f"{DOMAIN}/max-replicas"
# On the VMI template of a pool: a new value restarts all VMs.
RESTARTED_AT = f"{DOMAIN}/restarted-at"

# On a VM that waits for lifecycle hooks: the label with the transition, annotations with the time at which the pool
# began to hold the VM and the VMI that is to be stopped, and an annotation for each hook, with the time of its timeout.
TRANSITION = f"{DOMAIN}/transition"
TRANSITION_SINCE = f"{DOMAIN}/transition-since"
TRANSITION_VMI = f"{DOMAIN}/transition-vmi"
HOOK_PREFIX = f"hook.{DOMAIN}/"
# On VMIs and launcher pods of pools with lifecycle hooks: a Service that selects this label loses held VMs.
IN_SERVICE = f"{DOMAIN}/in-service"
# On a CronJob: `true` allows every pool of its namespace to run it as a Job of an analysis.
POOL_ANALYSIS = f"{DOMAIN}/pool-analysis"
# On the Pods of such a Job: the names of the pool and of the revision.
ANALYSED_POOL = f"{DOMAIN}/analysed-pool"
ANALYSED_REVISION = f"{DOMAIN}/analysed-revision"

# On a pool: the VMs that the pool deletes without replacing them, as `NAME=UID,...`. They do not count as replicas.
REMOVE_VMS = f"{DOMAIN}/remove-vms"
# On a pool or a warm pool: who wrote the references to objects that the controllers read again, as JSON. Only admission
# writes it: see poolhouse/api/kinds/reference_authors.py.
REFERENCE_AUTHORS = f"{DOMAIN}/reference-authors"
# On a pool: the sizes between which the Kubernetes cluster-autoscaler may scale it, as a node group.
NODE_GROUP_MIN_SIZE = f"{DOMAIN}/node-group-min-size"
NODE_GROUP_MAX_SIZE = f"{DOMAIN}/node-group-max-size"
# On a VM: scale-in never deletes the VM (`Protect`) or deletes it first (`First`).
SCALE_IN = f"{DOMAIN}/scale-in"

# Labels of warm VMs. Only Poolhouse's ServiceAccounts may write these labels, the only record of a VM's state.
WARM_STATE = f"{DOMAIN}/warm-state"
POOL_UID = f"{DOMAIN}/pool-uid"
CLAIM_UID = f"{DOMAIN}/claim-uid"
TEMPLATE_HASH = f"{DOMAIN}/template-hash"
PLACEMENT = f"{DOMAIN}/placement"
STANDBY = f"{DOMAIN}/standby"
ORPHANED = f"{DOMAIN}/orphaned"
INSTANCE_TYPE = f"{DOMAIN}/instance-type"
IMAGE_ID = f"{DOMAIN}/image-id"
KEY_PAIR = f"{DOMAIN}/key-pair"
SECURITY_GROUPS = f"{DOMAIN}/security-groups"
INSTANCE_PROFILE = f"{DOMAIN}/instance-profile"
SUBNET_ID = f"{DOMAIN}/subnet-id"
REQUESTER = f"{DOMAIN}/requester"
# A Secret that a warm pool's template names in an access credential. Each VM gets its own Secret, with the VM's postfix
# in the name. The Secret is empty until the handover, and then contains the keys of the claim's user.
CLAIM_KEY = "poolhouse-claim-key"
# Annotations of a warm VM: its claim, the Pod of the claim, times, and other state that a restarted controller needs.
# The claim names its Pod in the same annotations.
CLAIM_NAME = f"{DOMAIN}/claim-name"
POD_NAME = f"{DOMAIN}/pod-name"
POD_UID = f"{DOMAIN}/pod-uid"
ACTIVATED_AT = f"{DOMAIN}/activated-at"
# `spec.agent` of the pool when the VM was made, as JSON: the VM keeps its agent when the pool changes or is deleted.
AGENT = f"{DOMAIN}/agent"
STATE_SINCE = f"{DOMAIN}/state-since"
STATE_REASON = f"{DOMAIN}/state-reason"
CHECK_FAILURES = f"{DOMAIN}/check-failures"

# The resource and the taint of the virtual node, and the label by which the controllers know their Node.
WARM_VM = f"{DOMAIN}/warm-vm"
VIRTUAL_NODE = f"{DOMAIN}/virtual-node"

# Label with the winning migration policy of a VMI. KubeVirt's own policy selects the VMI by this label.
MIGRATION_POLICY = f"{DOMAIN}/migration-policy"

# Labels that only Poolhouse's ServiceAccounts may write; see poolhouse/manifests/admission_policy.py.
PROTECTED_LABELS = (WARM_STATE, POOL_UID, CLAIM_UID, MIGRATION_POLICY)

# Simulated faults: annotations on a VM or its VMI template, or keys of this ConfigMap.
SIMULATION = "simulation"
SIM_PREFIX = f"sim.{DOMAIN}/"
NODE_LOST = f"{SIM_PREFIX}lost"

# Secrets in Poolhouse's namespace: the CA, and the serving certificate.
CA_SECRET = "poolhouse-authorities"
SERVING_SECRET = "poolhouse-serving"
AGENT_CA_SECRET = "poolhouse-agent-authorities"

MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
POOLHOUSE = "poolhouse"
OURS = f"{PART_OF}={POOLHOUSE}"
"""selects the objects of the installation"""

# Names of KubeVirt.
KUBEVIRT_OPERATORS = ("virt-operator", "kubevirt-operator")
"""values of `MANAGED_BY` on objects that KubeVirt's operator installs; old versions use the second"""
KUBEVIRT_DRAIN_TAINT = "kubevirt.io/drain"
KUBEVIRT_EVACUATION = "kubevirt.io/evacuationMigration"
"""annotation of a migration with the name of the node that it evacuates"""
KUBEVIRT_CREATED_BY = "kubevirt.io/created-by"
"""label of launcher pods with the UID of their VMI"""


def is_installed_by_us(found: Mapping[str, Any]) -> bool:
    """Whether Poolhouse installed the CRD, and KubeVirt's operator has not taken it over."""
    labels = found.get("metadata", {}).get("labels") or {}
    return labels.get(PART_OF) == POOLHOUSE and labels.get(MANAGED_BY) not in KUBEVIRT_OPERATORS
