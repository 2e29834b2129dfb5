"""Reasons of the conditions and events of warm pools."""

from poolhouse.api.apimachinery.reasons import Reason


class WarmPoolReason(Reason):
    # Conditions
    ACCEPTED = "Accepted", "The spec is valid."
    INVALID_SPEC = "InvalidSpec", "The stored spec is invalid: the controller does nothing. The message has the path."
    MINIMUM_REPLICAS_AVAILABLE = "MinimumReplicasAvailable", "At least `replicas` less `maxUnavailable` VMs are ready."
    MINIMUM_REPLICAS_UNAVAILABLE = (
        "MinimumReplicasUnavailable",
        "Fewer than `replicas` less `maxUnavailable` VMs are ready.",
    )
    SCALING = "Scaling", "The controller creates or deletes VMs until the pool has the desired number."
    COMPLETE = "Complete", "All VMs are ready and made from the current template."
    READY = "Ready", "Enough VMs can be claimed, and no update replaces VMs."
    PAUSED = "Paused", "`spec.paused` is true: the controller creates and deletes no VM."
    UPDATING = "Updating", "The controller replaces waiting VMs that were made from an old template."
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded", "The rollout made no progress. Old VMs stay available."
    MAX_TOTAL_REACHED = "MaxTotalReached", "The pool has `maxTotal` VMs, claimed VMs included."
    INSUFFICIENT_CAPACITY = "InsufficientCapacity", "The cluster or a quota admits no more VMs. The controller retries."
    CIRCUIT_BREAKER_OPEN = "CircuitBreakerOpen", "`breakerThreshold` VMs in a row failed. One VM at a time is created."
    VMS_FAILING = "VMsFailing", "VMs fail to start; the message has KubeVirt's reason."
    TOO_MANY_UNHEALTHY = "TooManyUnhealthy", "More VMs are unhealthy than available. They are kept for inspection."
    HEALTH_UNKNOWN = "HealthUnknown", "VMs cannot be checked, for example on a node that is not ready. They are kept."
    FAILED_STANDBY = (
        "FailedStandby",
        "KubeVirt repeatedly refuses to pause, stop or start a VM; the message has its answer.",
    )
    BACKEND_UNAVAILABLE = "BackendUnavailable", "VMs or EC2 instances cannot be listed. None is created or deleted."
    CONFLICTING_LABELS = (
        "ConflictingLabels",
        "Labels of VMs contradict each other or the owner; the message has the names.",
    )
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        "The desired number of VMs is above the replica limit of the namespace. The controller creates no more.",
    )
    WITHIN_LIMIT = "WithinLimit", "The desired number of VMs is within the replica limit of the namespace."
    NO_OWNER = "NoOwner", "VMs have the label of this pool and no owner; the message has the names."
    NO_UNOWNED_VMS = "NoUnownedVMs", "All waiting VMs with the pool's label are VMs of the pool."
    AUTHOR_MAY_NOT_GET = (
        "AuthorMayNotGet",
        "The author of a reference may no longer get what it names, or that is unknown. The pool keeps what it has.",
    )
    AUTHORS_MAY_GET = "AuthorsMayGet", "No author of a reference has lost the right to what it names now."
    PLAN_TOO_EXPENSIVE = (
        "PlanTooExpensive",
        "A plan of the pool needs more processor time than one object may use. Nothing happens to its VMs until a plan"
        " fits.",
    )
    AS_EXPECTED = "AsExpected", "The controller found no problem."
    DEFAULT_POOL = "DefaultPool", "Claims that name no pool get a VM of this pool."
    DEFAULT_CONFLICT = "DefaultConflict", "An older pool of the namespace already has `default: true`."
    NO_DEFAULT_POOL = "NoDefaultPool", "No pool of the namespace has `default: true`."
    FOREIGN_EVICTION_BUDGET = (
        "ForeignEvictionBudget",
        "Another PodDisruptionBudget selects Pods of claimed VMs, or has the pool's name. The pool makes none of its"
        " own, because the eviction API refuses a Pod with two.",
    )
    EVICTION_BUDGETS_UNREADABLE = (
        "EvictionBudgetsUnreadable",
        "The controller cannot list PodDisruptionBudgets, so that no drain waits for claims.",
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
    NO_EVICTION_BUDGET_FAILURE = "NoEvictionBudgetFailure", "A drain waits for claimed VMs as the spec says."

    # Autoscaling: in the condition and in status.autoscaling
    WAIT_TARGET = "WaitTarget", "The size keeps `target.percentile` of the claims within `target.waitSeconds`."
    SPARE_RATIO = "SpareRatio", "The size is `target.spareRatio` of the claimed VMs."
    LEARNING = "Learning", "The demand or the boot time is not known yet: the pool has at least `spec.replicas` VMs."
    MIN_REPLICAS = "MinReplicas", "The demand needs fewer VMs than `minReplicas`."
    MAX_REPLICAS = (
        "MaxReplicas",
        "The demand needs more VMs than `maxReplicas`. Claims may wait longer than the target.",
    )
    SCHEDULE = "Schedule", "The demand needs fewer VMs than a schedule demands at this time."
    SCALE_DOWN_DELAYED = "ScaleDownDelayed", "The size is that of a higher demand within `scaleDownDelaySeconds`."
    IDLE_CEILING = (
        "IdleCeiling",
        "VMs waited for `maxIdleVMHoursPerDay` today. The pool has `minReplicas` until midnight.",
    )
    SCALE_IGNORED = "ScaleIgnored", "A HorizontalPodAutoscaler or `kubectl scale` set `spec.replicas` without effect."

    # Failures to get a VM: in conditions, events and `status.failures`
    FAILED_CREATE = "FailedCreate", "The API server or EC2 refused to create a VM; the message is its answer."
    INVALID_TEMPLATE = "InvalidTemplate", "The defaulter refused the VM of the template; the message says why."
    READINESS_TIMEOUT = "ReadinessTimeout", "A VM was deleted: it was not healthy within `readiness.timeoutSeconds`."
    NO_ROOM = "NoRoom", "A VM that cannot be claimed was deleted to make room for another."

    # Events
    SUCCESSFUL_CREATE = "SuccessfulCreate", "The controller created a VM."
    SUCCESSFUL_DELETE = "SuccessfulDelete", "The controller deleted a waiting VM; the message says why."
    VM_READY = "VMReady", "A VM is ready to be claimed."
    STANDBY_ENTERED = "StandbyEntered", "A VM changes to the standby mode in which it waits for a claim."
    UNHEALTHY = "Unhealthy", "Checks of a waiting VM failed or could not run. Claims do not get it."
    ORPHANED = "Orphaned", "A VM was released from the pool; it keeps running with the label `orphaned`."
    INVARIANT_VIOLATED = "InvariantViolated", "A VM has labels that the controllers never write. Please report it."
    CIRCUIT_BREAKER_CLOSED = "CircuitBreakerClosed", "VMs start again."
    POOL_EMPTY = "PoolEmpty", "No VM is ready to be claimed."
    IMAGE_CHANGED = "ImageChanged", "A tracked DataSource points at a new image, which new VMs get."
    ROLLOUT_STARTED = "RolloutStarted", "The template changed. The controller replaces waiting VMs."
    ROLLOUT_STALLED = "RolloutStalled", "VMs of the new template do not become ready. Old VMs stay available."
    ROLLOUT_COMPLETE = "RolloutComplete", "All waiting VMs are made from the current template."
    DELETED_BY_OTHER = (
        "DeletedByOther",
        "Another client deleted a VM, or its claim. Only `status.decisions` has this reason. An audit log of the API"
        " server has the client's name.",
    )
