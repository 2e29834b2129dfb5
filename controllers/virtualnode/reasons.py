"""The reasons of conditions and events of Pods on the virtual node. A Pod that waits also has those of its claim."""

from poolhouse.api.apimachinery.reasons import Reason


class PodReason(Reason):
    FIELDS_NOT_SUPPORTED = (
        "FieldsNotSupported",
        "The Pod asks for something that no warm VM can do. The message names all the fields.",
    )
    NO_WARM_POOL = (
        "NoWarmPool",
        "The annotation `poolhouse.dev/warm-pool` names no warm pool of the namespace, or the Pod has no such"
        " annotation and the namespace has no default pool.",
    )
    PODS_NOT_ALLOWED = "PodsNotAllowed", "`claimPolicy.allowPods` of the pool is not true."
    FAILED_CLAIM = (
        "FailedClaim",
        "The claim for the Pod is too large, or the API server refused it; the message is its answer.",
    )
    VM_BOUND = "VMBound", "The Pod has its VM, in which its containers were started."
    CONTAINER_WAITING = (
        "ContainerWaiting",
        "A container waits. The message is that of the agent, which may lack podman or the image.",
    )
    CLAIM_LOST = "ClaimLost", "Somebody deleted the claim of the Pod, and with it the VM in which the Pod ran."
    DEADLINE_EXCEEDED = "DeadlineExceeded", "The Pod had its VM for longer than `activeDeadlineSeconds`."
    OUT_OF_CPU = "OutOfcpu", "The Pod requests more CPUs than any VM has, so it is Failed."
    OUT_OF_MEMORY = "OutOfmemory", "The Pod requests more memory than any VM has, so it is Failed."
    OUT_OF_STORAGE = "OutOfephemeral-storage", "The Pod requests more storage than any VM has, so it is Failed."
    OUT_OF_WARM_VM = "OutOfpoolhouse.dev/warm-vm", "The Pod requests too many VMs, so it is Failed. It needs one."
