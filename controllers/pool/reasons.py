"""Reasons of the conditions and events of VirtualMachinePools."""

from poolhouse.api.apimachinery.reasons import Reason


class PoolReason(Reason):
    # Conditions
    INVALID_SPEC = ("InvalidSpec", "The stored spec is invalid: the controller does nothing. The message has the path.")
    MINIMUM_REPLICAS_AVAILABLE = "MinimumReplicasAvailable", "No more VMs are unavailable than `maxUnavailable`."
    MINIMUM_REPLICAS_UNAVAILABLE = ("MinimumReplicasUnavailable", "More VMs are unavailable than `maxUnavailable`.")
    NODE_NOT_READY = (
        "NodeNotReady",
        "VMs are unavailable, because their node is not ready or does not exist. The message names the node.",
    )
    FAILED_START = (
        "FailedStart",
        "More VMs are unavailable than `maxUnavailable`, because they do not start. The message has the causes.",
    )
    NODE_READY = "NodeReady", "A node with unavailable VMs is ready again. Only `status.decisions` has this reason."
    PAUSED = "PoolPaused", "`spec.paused` is true: the controller does nothing to the pool's VMs."
    RESUMED = "PoolResumed", "The pool is not paused."
    NO_FAILURE = "NoFailure", "The API server refused nothing."
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "`spec.replicas` is above the replica limit of the namespace: the controller creates no VMs above it.",
    )
    WITHIN_LIMIT = "WithinLimit", "`spec.replicas` is within the replica limit of the namespace."
    NO_CANDIDATES = "NoCandidates", "Too many VMs exist, and scale-in may not delete enough of them."
    WAITING_FOR_BUDGET = (
        "WaitingForDisruptionBudget",
        "Too many VMs exist, and scale-in waits until enough VMs are available. The message has `maxUnavailable`.",
    )
    NOT_BLOCKED = "NotBlocked", "Scale-in is possible, or is not needed."
    DISK_CONFLICT = "DiskConflict", "Two VMs use one disk, or would: the message names the disk and its other owner."
    NO_DISK_CONFLICT = "NoDiskConflict", "No VM of the pool uses a disk of another owner."
    TOO_MANY_FAILING = (
        "TooManyFailing",
        "Healing has stopped, because too many VMs fail at once. The cause is elsewhere.",
    )
    VMS_REPLACED = "VMsReplaced", "Healing replaced VMs. The message lists them with the number of attempts."
    NO_FAILING_VMS = "NoFailingVMs", "No VM fails repeatedly."
    DISK_TEMPLATE_CHANGED = (
        "DiskTemplateChanged",
        "dataVolumeTemplates has changed since disks of VMs were created. No update changes a disk that exists.",
    )
    DISKS_UP_TO_DATE = "DisksUpToDate", "All disks were created from the pool's dataVolumeTemplates."
    SNAPSHOT_FAILED = (
        "SnapshotFailed",
        "VMs are not updated, because their VirtualMachineSnapshots failed. The controller takes them again later.",
    )
    SNAPSHOTS_NOT_SERVED = (
        "SnapshotsNotServed",
        "`snapshotBeforeUpdate` is true, and the cluster does not serve VirtualMachineSnapshots: no VM is updated.",
    )
    RESTORE_FAILED = "RestoreFailed", "Restores of VMs failed, or are gone. The message has the reasons."
    NO_SNAPSHOT_FAILURE = "NoSnapshotFailure", "No snapshot and no restore of a VM has failed."
    PROGRESS_DEADLINE_EXCEEDED = (
        "ProgressDeadlineExceeded",
        "The pool made no progress for `progressDeadlineSeconds`. An update stops.",
    )
    UPDATE_ABORTED = (
        "UpdateAborted",
        "The update failed or a user aborted it, and the VMs get their former template again.",
    )
    ABORTED = "AbortedByUser", "A user aborted the update."
    UPDATE_PAUSED = "UpdatePaused", "A step pauses the update for a time, or until a user promotes it."
    WAITING_FOR_WINDOW = (
        "WaitingForMaintenanceWindow",
        "VMs are not up to date, and no maintenance window is open. The message says when the next one opens.",
    )
    TEMPLATE_DOES_NOT_FIT = (
        "TemplateDoesNotFit",
        "A VM cannot get the template, because its name has no number of the pool, or because a disk of the template"
        " belongs to somebody else. The message says what to do.",
    )
    WAITING_FOR_HOOKS = "WaitingForHooks", "VMs wait for lifecycle hooks, before the pool deletes or restarts them."
    NO_OWNER = "NoOwner", "VMs have the pool's names and label, but not its owner reference: detached or restored ones."
    NO_REVISION_LOST = "NoRevisionLost", "No update has lost the ControllerRevision of a VM's former template."
    NO_UNOWNED_VMS = "NoUnownedVMs", "All VMs with the pool's names and label are VMs of the pool."
    AUTHOR_MAY_NOT_GET = (
        "AuthorMayNotGet",
        "The author of a reference may no longer get what it names, or that is unknown. The pool keeps what it has.",
    )
    AUTHORS_MAY_GET = "AuthorsMayGet", "No author of a reference has lost the right to what it names now."
    NO_VMS_HELD = "NoVMsHeld", "No VM waits for lifecycle hooks."
    FOREIGN_EVICTION_BUDGET = (
        "ForeignEvictionBudget",
        "Another PodDisruptionBudget selects Pods of the pool, or has its name. The pool makes none of its own, because"
        " the eviction API refuses a Pod with two.",
    )
    EVICTION_BUDGETS_UNREADABLE = (
        "EvictionBudgetsUnreadable",
        "The controller cannot list PodDisruptionBudgets, so that the pool has none.",
    )
    EVICTION_BUDGET_REFUSED = (
        "EvictionBudgetRefused",
        "The controller cannot create, change or delete the PodDisruptionBudget of the pool. The message has the answer"
        " of the API server. It tries again after a pause, which grows to five minutes.",
    )
    EVICTION_STRATEGY_UNKNOWN = (
        "EvictionStrategyUnknown",
        "The controller finds no KubeVirt object that it may read, so that it does not know whether an eviction stops"
        " VMs without an `evictionStrategy`. A PodDisruptionBudget of the pool stays as it is.",
    )
    EVICTIONS_BLOCKED = (
        "EvictionsBlocked",
        "VMs of the pool do not start, are paused, or are not ready for `progressDeadlineSeconds`, so that its"
        " PodDisruptionBudget allows no eviction: a drain waits for them.",
    )
    NO_EVICTION_BUDGET_FAILURE = "NoEvictionBudgetFailure", "Evictions of the pool's VMs are limited as the spec says."
    ANALYSIS_RUNNING = "AnalysisRunning", "The update waits until all checks of its analysis are successful."
    ANALYSIS_INCONCLUSIVE = (
        "AnalysisInconclusive",
        "No more VMs get the template, because the last measurement of a check was not successful.",
    )
    ANALYSIS_FAILED = "AnalysisFailed", "A check of the analysis failed, and the update was rolled back."
    UPDATING = "UpdatingVMs", "The controller updates VMs to the pool's template."
    SCALING = "ScalingVMs", "The controller creates or deletes VMs, or VMs are starting."
    COMPLETE = "Complete", "All VMs are as the spec requires."
    READY = "Ready", "All VMs are as the spec requires, and are available."
    PLAN_TOO_EXPENSIVE = (
        "PlanTooExpensive",
        "A plan of the pool needs more processor time than one object may use. The message says what it is expensive"
        " for. Nothing happens to its VMs until a plan fits.",
    )
    # Events
    SUCCESSFUL_SAVE_REVISION = "SuccessfulSaveRevision", "The controller saved a new template as a ControllerRevision."
    FAILED_SAVE_REVISION = "FailedSaveRevision", "The controller could not save the ControllerRevision."
    REVISION_LOST = (
        "RevisionLost",
        "The ControllerRevision of a VM's former template is gone. The update of the VM removes no field.",
    )
    SUCCESSFUL_ADOPT_REVISION = (
        "SuccessfulAdoptRevision",
        "A ControllerRevision of the pool had no owner. The controller made the pool its owner again.",
    )
    FAILED_ADOPT_REVISION = (
        "FailedAdoptRevision",
        "The controller could not make the pool the owner of its ControllerRevision.",
    )
    SUCCESSFUL_PIN_MACHINE_TYPE = (
        "SuccessfulPinMachineType",
        "A ControllerRevision records the machine type of its VMs, which later VMs of the revision get.",
    )
    FAILED_PIN_MACHINE_TYPE = (
        "FailedPinMachineType",
        "The controller could not record the machine type of VMs in their ControllerRevision.",
    )
    SUCCESSFUL_PRUNE_REVISION = "SuccessfulPruneRevision", "The controller deleted a revision over the history limit."
    FAILED_PRUNE_REVISION = "FailedPruneRevision", "The controller could not delete an old revision."
    SUCCESSFUL_ADOPT = (
        "SuccessfulAdopt",
        "The controller added `controller: true` to a VM's owner reference, so that the VM is a member of the pool.",
    )
    FAILED_ADOPT = "FailedAdopt", "The controller could not make the pool the controller of a VM."
    SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VM. The message has the reason."
    FAILED_CREATE = "FailedCreate", "The API server refused a new VM. The controller tries again after a growing pause."
    SUCCESSFUL_DELETE = "SuccessfulDelete", "The controller deleted a VM. The message has the reason."
    FAILED_DELETE = "FailedDelete", "The API server refused to delete a VM. The message has its answer."
    SUCCESSFUL_UPDATE = "SuccessfulUpdate", "The controller updated a VM to the pool's template."
    FAILED_UPDATE = "FailedUpdate", "The API server refused the update of a VM. The message has its answer."
    SUCCESSFUL_TAKE_SNAPSHOT = (
        "SuccessfulTakeSnapshot",
        "KubeVirt has completed the VirtualMachineSnapshot of a VM, which the controller requested before its update.",
    )
    FAILED_TAKE_SNAPSHOT = (
        "FailedTakeSnapshot",
        "The API server refused the VirtualMachineSnapshot of a VM, which is therefore not updated.",
    )
    SUCCESSFUL_RESTORE = (
        "SuccessfulRestore",
        "The controller created a VirtualMachineRestore, which stops a VM and replaces its disks.",
    )
    FAILED_RESTORE = "FailedRestore", "The API server refused the VirtualMachineRestore of a VM."
    SUCCESSFUL_PRUNE_SNAPSHOT = (
        "SuccessfulPruneSnapshot",
        "The controller deleted a VirtualMachineSnapshot that failed, or that a newer one replaces.",
    )
    FAILED_PRUNE_SNAPSHOT = "FailedPruneSnapshot", "The controller could not delete a VirtualMachineSnapshot."
    SUCCESSFUL_FORGET_RESTORE = (
        "SuccessfulForgetRestore",
        "The restore of a VM that runs is gone, and the controller does not wait for it any more.",
    )
    FAILED_FORGET_RESTORE = "FailedForgetRestore", "The controller could not end the wait for a restore that is gone."
    SUCCESSFUL_LABEL_STATE = (
        "SuccessfulLabelState",
        "The controller labelled the restored TPM and EFI variables of a VM, so that KubeVirt completes the restore.",
    )
    FAILED_LABEL_STATE = (
        "FailedLabelState",
        "The controller could not label the restored TPM and EFI variables of a VM.",
    )
    SUCCESSFUL_PRUNE_RESTORE = (
        "SuccessfulPruneRestore",
        "The controller deleted a VirtualMachineRestore that is complete.",
    )
    FAILED_PRUNE_RESTORE = "FailedPruneRestore", "The controller could not delete a VirtualMachineRestore."
    SUCCESSFUL_LABEL_VMI = (
        "SuccessfulLabelVMI",
        "The controller wrote new labels and annotations of the template into a running VMI.",
    )
    FAILED_LABEL_VMI = "FailedLabelVMI", "The API server refused the new labels and annotations of a running VMI."
    SUCCESSFUL_HOLD = (
        "SuccessfulHold",
        "The controller holds a VM for lifecycle hooks, before it deletes or restarts the VM.",
    )
    FAILED_HOLD = "FailedHold", "The controller could not hold a VM for lifecycle hooks, and has not stopped it."
    SUCCESSFUL_END_HOLD = (
        "SuccessfulEndHold",
        "A VM is no longer held: it was restarted, or the pool no longer wants to stop it.",
    )
    FAILED_END_HOLD = "FailedEndHold", "The controller could not remove the marks of a held VM."
    SUCCESSFUL_SET_IN_SERVICE = (
        "SuccessfulSetInService",
        "The controller changed the label `poolhouse.dev/in-service` of a VMI and its launcher pods.",
    )
    FAILED_SET_IN_SERVICE = (
        "FailedSetInService",
        "The controller could not change the label `poolhouse.dev/in-service` of a VMI or of its launcher pods.",
    )
    SUCCESSFUL_SET_EVICTION_BUDGET = (
        "SuccessfulSetEvictionBudget",
        "The controller created or changed the PodDisruptionBudget of the pool.",
    )
    FAILED_SET_EVICTION_BUDGET = (
        "FailedSetEvictionBudget",
        "The controller could not create or change the PodDisruptionBudget of the pool.",
    )
    SUCCESSFUL_DELETE_EVICTION_BUDGET = (
        "SuccessfulDeleteEvictionBudget",
        "The controller deleted the PodDisruptionBudget of the pool. The message says why.",
    )
    FAILED_DELETE_EVICTION_BUDGET = (
        "FailedDeleteEvictionBudget",
        "The controller could not delete the PodDisruptionBudget of the pool.",
    )
    SUCCESSFUL_RESTART = "SuccessfulRestart", "The controller restarted a VM, so that it runs with the new template."
    FAILED_RESTART = "FailedRestart", "The controller could not restart a VM."
    SUCCESSFUL_RUN_JOB = "SuccessfulRunJob", "The controller created a Job of an analysis."
    FAILED_RUN_JOB = "FailedRunJob", "The controller could not create a Job of an analysis. The message says why."
    SUCCESSFUL_HEAL = "SuccessfulHeal", "The controller deleted a failing VM with its disks, to create it again."
    FAILED_HEAL = "FailedHeal", "The controller could not delete a failing VM."
    SUCCESSFUL_RELEASE_DISKS = "SuccessfulReleaseDisks", "The disks of a deleted VM were retained."
    FAILED_RELEASE_DISKS = ("FailedReleaseDisks", "The disks of a VM are not retained yet, and the VM stays.")
    SUCCESSFUL_DATE_DISK = "SuccessfulDateDisk", "The controller wrote the time of retention on a retained disk."
    FAILED_DATE_DISK = "FailedDateDisk", "The controller could not write the time of retention on a retained disk."
    SUCCESSFUL_DELETE_DISKS = (
        "SuccessfulDeleteDisks",
        "The controller deleted retained disks, by a limit of `retainedDisks`. The message names the limit.",
    )
    FAILED_DELETE_DISKS = "FailedDeleteDisks", "The controller could not delete retained disks."
    SUCCESSFUL_RETURN_DISK = "SuccessfulReturnDisk", "The controller returned a retained disk to its VM."
    SUCCESSFUL_RETAIN_DISKS = "SuccessfulRetainDisks", "The controller retained disks that an update has replaced."
    FAILED_RETAIN_DISKS = "FailedRetainDisks", "The controller could not retain disks that an update has replaced yet."
    FAILED_RETURN_DISK = "FailedReturnDisk", "The controller could not return a retained disk to its VM."
    SUCCESSFUL_REMOVE_FINALIZER = (
        "SuccessfulRemoveFinalizer",
        "The controller removed its finalizer from a VM that it no longer deletes.",
    )
    FAILED_REMOVE_FINALIZER = "FailedRemoveFinalizer", "The controller could not remove its finalizer from a VM."
    INVALID_SCALE_IN = (
        "InvalidScaleIn",
        "A VM's `poolhouse.dev/scale-in` is neither `Protect` nor `First`. The VM counts as protected.",
    )
    DELETED_BY_OTHER = (
        "DeletedByOther",
        "Another client deleted a VM. Only `status.decisions` has this reason. An audit log of the API server has the"
        " client's name.",
    )
    EVICTED = (
        "Evicted",
        "A VM was stopped while its node was drained. The message says whether KubeVirt starts it on another node.",
    )
    DETACHED = "Detached", "A VM left the pool, because its owner reference was removed."
    ATTACHED = "Attached", "A VM joined the pool, because it got the pool's owner reference."
