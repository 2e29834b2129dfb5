"""Reasons of the conditions and events of MigrationPolicies."""

from poolhouse.api.apimachinery.reasons import Reason


class ActiveReason(Reason):
    """Reasons of the condition Active: whether the policy can win VMIs."""

    ACCEPTED = "Accepted", "The policy can win VMIs."
    INVALID_SPEC = "InvalidSpec", "The stored policy is invalid and never applies. The message has the path."
    EXPIRED = "Expired", "The time in `expiresAt` has come, and the policy matches no VMI any more."
    SAME_SELECTORS = "SameSelectors", "An older policy has the same selectors. This policy never applies."
    NO_SELECTORS = "NoSelectors", "The policy has no label in either selector, so it matches no VMI."


class EnforcedReason(Reason):
    """Reasons of the condition Enforced: whether KubeVirt applies the policy."""

    IN_SYNC = "InSync", "KubeVirt's own policy of this name has the same settings."
    NOT_ACTIVE = "NotActive", "The condition Active is False."
    CRD_NOT_INSTALLED = "CRDNotInstalled", "The cluster does not serve `migrations.kubevirt.io`."
    NAME_CONFLICT = (
        "NameConflict",
        "KubeVirt has a policy of this name that Poolhouse does not own, and that stays as it is.",
    )
    FAILED_UPDATE = "FailedUpdate", "The API server refused to write KubeVirt's policy. The message quotes it."
    UPDATE_CONFLICT = (
        "UpdateConflict",
        "Another client changes KubeVirt's policy after each repair. The controller repairs it less and less often.",
    )
    FAILED_LABEL = (
        "FailedLabel",
        "The API server refused to label some VMIs, so KubeVirt does not apply the policy to them.",
    )
    OVERRIDDEN = (
        "Overridden",
        "Another policy of KubeVirt could match the same VMIs with more labels, and KubeVirt would prefer it.",
    )
    UNSUPPORTED = (
        "Unsupported",
        "This cluster's KubeVirt does not have a setting of the policy, or has it only for the whole cluster. The other"
        " settings apply.",
    )


class PolicyEvent(Reason):
    ENFORCED = "Enforced", "KubeVirt applies the policy again."
    REPAIRED = "Repaired", "KubeVirt's policy differed, and the controller corrected it."
