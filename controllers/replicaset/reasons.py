"""Reasons of the conditions and events of VirtualMachineInstanceReplicaSets."""

from poolhouse.api.apimachinery.reasons import Reason


class ReplicaSetReason(Reason):
    # Conditions. The design document names FailureCreate and FailureDelete.
    INVALID_SPEC = "InvalidSpec", "The stored spec is invalid: the controller does nothing. The message has the path."
    FAILURE_CREATE = "FailureCreate", "The API server refused a new VMI. The message has its answer."
    FAILURE_DELETE = "FailureDelete", "The API server refused to delete a VMI. The message has its answer."
    FAILURE_ADOPT = "FailureAdopt", "The API server refused an owner reference on a matching VMI."
    FAILURE_RELEASE = "FailureRelease", "The API server refused to remove the owner reference from a VMI."
    FAILURE_START = ("FailureStart", "VMIs end soon after their start. The message says when they are replaced.")
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "`spec.replicas` is above the replica limit of the namespace: the controller creates no VMIs above it.",
    )
    READY = "Ready", "The desired number of VMIs is ready."
    SCALING = "ScalingVMIs", "The controller creates or deletes VMIs, or VMIs are starting."
    PAUSED = "Paused", "`spec.paused` is true: the controller creates and deletes nothing."
    PLAN_TOO_EXPENSIVE = (
        "PlanTooExpensive",
        "A plan of the set needs more processor time than one object may use. Nothing happens to its VMIs until a plan"
        " fits.",
    )
    # Events
    SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VMI. The message has the reason."
    FAILED_CREATE = ("FailedCreate", "The API server refused a new VMI. The controller tries again later.")
    SUCCESSFUL_DELETE = "SuccessfulDelete", "The controller deleted a VMI. The message has the reason."
    FAILED_DELETE = "FailedDelete", "The API server refused to delete a VMI. The message has its answer."
    SUCCESSFUL_ADOPT = ("SuccessfulAdopt", "The controller adopted a matching VMI that had no controller.")
    FAILED_ADOPT = "FailedAdopt", "The controller could not adopt a matching VMI."
    SUCCESSFUL_RELEASE = "SuccessfulRelease", "The controller released a VMI whose labels stopped matching; it runs on."
    FAILED_RELEASE = "FailedRelease", "The controller could not release a VMI."
    SUCCESSFUL_PAUSED = "SuccessfulPaused", "The replica set was paused."
    SUCCESSFUL_RESUMED = "SuccessfulResumed", "The replica set is not paused any more."
    DELETED_BY_OTHER = (
        "DeletedByOther",
        "Another client deleted a VMI. Only `status.decisions` has this reason. An audit log of the API server has the"
        " client's name.",
    )
