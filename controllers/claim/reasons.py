"""The reasons of conditions and events of claims."""

from poolhouse.api.apimachinery.reasons import Reason


class ClaimReason(Reason):
    # The claim waits for a VM, or gets none
    INVALID_SPEC = "InvalidSpec", "The stored spec cannot be read. The message has the path."
    NO_DEFAULT_POOL = "NoDefaultPool", "The claim names no pool, and no pool of the namespace is the default."
    POOL_NOT_FOUND = "PoolNotFound", "The namespace has no pool of this name, or the pool is being deleted."
    POOL_INVALID = "PoolInvalid", "The pool's spec cannot be read."
    POOL_EMPTY = "PoolEmpty", "No VM of the pool is ready; a VM is created for the claim."
    MAX_TOTAL_REACHED = "MaxTotalReached", "The pool has `maxTotal` VMs, so no VM is created for the claim."
    POOL_PAUSED = "PoolPaused", "No VM of the pool fits the claim, and the pool is paused: no VM is created."
    BACKEND_UNAVAILABLE = "BackendUnavailable", "The pool's VMs cannot be listed now, so none is given away or created."
    QUOTA_EXCEEDED = "QuotaExceeded", "The namespace or the user has as many claims as the pool allows."
    OVERRIDE_MISMATCH = "OverrideMismatch", "No ready VM has what the claim overrides; a VM is created for the claim."
    OVERRIDE_NOT_ALLOWED = "OverrideNotAllowed", "The pool does not allow this override."
    PERSONALIZATION_NOT_ALLOWED = "PersonalizationNotAllowed", "The pool does not allow this personalization."
    APPLICATION_NOT_ALLOWED = "ApplicationNotAllowed", "The pool does not allow applications."
    PODS_NOT_ALLOWED = "PodsNotAllowed", "The pool does not allow Pods."
    APPLICATION_UNSUPPORTED = "ApplicationUnsupported", "VMs of the pool cannot run the application."
    APPLICATION_SOURCE_MISSING = (
        "ApplicationSourceMissing",
        "A ConfigMap, a Secret or an entry that the application needs does not exist.",
    )
    APPLICATION_SOURCE_FORBIDDEN = (
        "ApplicationSourceForbidden",
        "The controllers may not read a ConfigMap or a Secret that the application needs.",
    )
    NO_CAPACITY = "NoCapacity", "No VM is ready, and `onEmpty` is Fail."
    QUEUED = "Queued", "The claim waits in the queue."
    BIND_TIMEOUT = "BindTimeout", "No VM was bound within `bindTimeoutSeconds`."
    FAILED_CREATE = "FailedCreate", "A VM for the claim could not be created; the message is the API server's."
    FAILED_RESERVE = (
        "FailedReserve",
        "A ready VM could not be reserved for the claim, for example because a webhook or policy refused it; the"
        " message is the API server's. Another VM is tried after a pause.",
    )
    VM_NOT_RECORDED = (
        "VMNotRecorded",
        "A VM in use has the claim's UID, and neither the claim's status nor the pool's has the VM. The claim does not"
        " get it. Delete the VM if nobody needs it, or release the claim, which deletes the VM too.",
    )
    # The claim has a VM
    VM_BOUND = "VMBound", "The VM belongs to this claim alone."
    ACTIVATING = "Activating", "The VM is being resumed, started, checked or personalized."
    HANDED_OVER = "HandedOver", "The VM runs and was handed over."
    VM_NOT_READY = "VMNotReady", "The VM was handed over and is not ready now."
    FAILED_UPDATE = "FailedUpdate", "The VM could not be labelled as handed over; the message is the API server's."
    ACTIVATION_FAILED = "ActivationFailed", "The VM did not become usable. It is deleted, and another VM is tried once."
    VM_LOST = "VMLost", "The claim's VM was deleted by a user or another component, or disappeared with its node."
    TTL_EXPIRING = "TTLExpiring", "A tenth of the claim's time is left; extend `ttlSeconds` to keep the VM."
    TTL_EXTENDED = "TTLExtended", "`ttlSeconds` was extended."
    EXPIRED = "Expired", "The claim's time is over."
    RELEASED = "Released", "The claim was released."
    # The node of the claim's VM is drained
    NODE_DRAINING = (
        "NodeDraining",
        "The node of the VM is cordoned or drained. A drain waits for the claim as the message says.",
    )
    EVICTION_ALLOWED = (
        "EvictionAllowed",
        "The node of the VM is cordoned or drained, and an eviction may stop the VM. KubeVirt then starts it on another"
        " node.",
    )
    EVICTED = "Evicted", "The VM was stopped while its node was drained. KubeVirt starts it again on another node."
    EVACUATING = "Evacuating", "An eviction has marked the VM, so that it moves to another node while its guest runs."
    # The application of the claim
    APPLICATION_AT_BOOT = "ApplicationAtBoot", "cloud-init starts the application; Poolhouse does not see its state."
    # Personalization
    PERSONALIZED = "Personalized", "The VM got everything that `spec.personalization` asks for."
    VM_SECRET_MISSING = (
        "VMSecretMissing",
        "The VM has neither a Secret for SSH keys nor a cloud-init volume to pass them.",
    )
    INVALID_PUBLIC_KEYS = (
        "InvalidPublicKeys",
        "The Secret of the claim does not exist, or holds other things than public keys.",
    )
    CREDENTIALS_NOT_SYNCHRONIZED = (
        "AccessCredentialsNotSynchronized",
        "The keys are in the VM's Secret, but KubeVirt does not report that it passed them to the guest.",
    )
    SECRETS_FORBIDDEN = "SecretsForbidden", "The controllers may not read or write Secrets of the namespace."
    LABELS_REJECTED = "LabelsRejected", "The VM did not get the labels that the claim asks for."
    UNSUPPORTED_ON_EC2 = "UnsupportedOnEC2", "An EC2 instance cannot get this."
    # Events
    CLAIM_QUEUED = "ClaimQueued", "No VM is ready; the message has the position in the queue."
    CLAIM_BOUND = "ClaimBound", "The claim got a paused or stopped VM."
    COLD_START = "ColdStart", "No ready VM fitted; a VM was created for the claim."
    CLAIM_READY = "ClaimReady", "The VM was handed over. A running warm VM that is handed over at once has no Event."
    CLAIM_EXPIRING = "ClaimExpiring", "A tenth of the claim's time is left; extend `ttlSeconds` to keep the VM."
    CLAIM_EXPIRED = "ClaimExpired", "The claim's time is over; the VM is deleted."
    CLAIM_RELEASED = "ClaimReleased", "The claim was released and its VM is gone."
    SUCCESSFUL_DELETE = "SuccessfulDelete", "A VM of the claim was deleted, for the reason in the message."
