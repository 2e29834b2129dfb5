"""The conditions of all kinds: what each of them says, and when an object has it.

`reasons.py` of a controller has their reasons, and its `READINESS` those by which an object is Stalled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from poolhouse.api.kinds.resource_types import CLAIMS, MIGRATION_POLICIES, OURS, POOLS, REPLICA_SETS, WARM_POOLS
from poolhouse.api.kinds.resource_types import ResourceType as Kind


@dataclass(frozen=True)
class ConditionType:
    name: str
    kinds: tuple[Kind, ...]
    when_true: str
    when_false: str
    while_true: bool = False
    """whether an object has the condition only while it is True"""
    since_true: bool = False
    """whether an object has the condition only after it was True for the first time"""
    only: str = ""
    """which objects have the condition, if not all have it"""
    noted: bool = False
    """whether commands show the condition while it is True, although it changes neither the health of the object nor
    the work of the controller"""


_POOLS = (POOLS, WARM_POOLS)
_SETS = (POOLS, REPLICA_SETS, WARM_POOLS)
_ALL = (
    ConditionType("Ready", OURS, "It is ready", "It is not ready"),
    ConditionType(
        "Reconciling", OURS, "The controller works towards the spec", "Nothing is left to do", while_true=True
    ),
    ConditionType("Stalled", OURS, "A user must change something", "No user must change anything", while_true=True),
    ConditionType("Valid", (WARM_POOLS,), "The spec is valid", "The spec is invalid"),
    ConditionType("Available", _POOLS, "Enough VMs are available", "Too few VMs are available"),
    ConditionType("Progressing", _POOLS, "Changes make progress, or are complete", "Changes make no progress"),
    ConditionType(
        "Healing",
        (POOLS,),
        "Failing VMs are replaced",
        "Failing VMs are not replaced",
        only="with `spec.autohealing`, since a VM first failed",
    ),
    ConditionType("Degraded", (WARM_POOLS,), "VMs fail, or cannot be created", "No VM fails", since_true=True),
    ConditionType(
        "RolloutComplete",
        (WARM_POOLS,),
        "All waiting VMs have the template",
        "Not all waiting VMs have the template",
    ),
    ConditionType(
        "Default",
        (WARM_POOLS,),
        "It is the default pool of the namespace",
        "It is not the default pool",
        only="with `spec.default: true`, or if the namespace has no default pool",
    ),
    ConditionType(
        "Autoscaling",
        (WARM_POOLS,),
        "The autoscaling decides about the size",
        "The autoscaling does not decide",
        only="with `spec.autoscaling`",
    ),
    ConditionType(
        "ScalingLimited", _SETS, "Replicas are above the limit", "Replicas are within the limit", since_true=True
    ),
    ConditionType("ScaleInBlocked", (POOLS,), "Scale-in is blocked", "Scale-in is not blocked", since_true=True),
    ConditionType(
        "DisksShared",
        (POOLS,),
        "Disks are shared with another owner",
        "No disk is shared with another owner",
        since_true=True,
    ),
    ConditionType(
        "DisksOutdated", (POOLS,), "Some disks have an old template", "All disks have the template", since_true=True
    ),
    ConditionType("SnapshotFailure", (POOLS,), "Snapshots fail", "Snapshots succeed", since_true=True),
    ConditionType("VMsHeld", (POOLS,), "Lifecycle hooks hold VMs", "No VM is held", since_true=True),
    ConditionType(
        "UnownedVMs",
        _POOLS,
        "VMs have the pool's label and no owner",
        "All VMs with the pool's label are its own",
        since_true=True,
        noted=True,
    ),
    ConditionType(
        "RevisionLost",
        (POOLS,),
        "An update may have left fields in VMs",
        "No update has left fields in VMs",
        since_true=True,
        noted=True,
    ),
    ConditionType(
        "ReferencesRefused",
        _POOLS,
        "An author may no longer get what the spec names",
        "Authors may get what the spec names",
        since_true=True,
        noted=True,
    ),
    ConditionType(
        "EvictionBudgetFailure",
        _POOLS,
        "A drain may stop too many VMs, or never end",
        "A drain respects the pool",
        since_true=True,
        noted=True,
    ),
    ConditionType(
        "ReplicaFailure",
        (POOLS, REPLICA_SETS),
        "VMs cannot be created or deleted",
        "VMs can be created and deleted",
        since_true=True,
    ),
    ConditionType("Paused", (POOLS,), "It is paused", "It is not paused", since_true=True),
    ConditionType("ReplicaPaused", (REPLICA_SETS,), "It is paused", "It is not paused"),
    ConditionType("Bound", (CLAIMS,), "It has a VM", "It has no VM"),
    ConditionType(
        "Personalized",
        (CLAIMS,),
        "The VM is personalized",
        "The VM is not personalized",
        only="with `spec.personalization`, since the claim was first ready",
    ),
    ConditionType(
        "ApplicationHealthy",
        (CLAIMS,),
        "The application is healthy",
        "The application is not healthy",
        only="with `spec.application`",
    ),
    ConditionType("Expiring", (CLAIMS,), "Its time ends soon", "Its time does not end soon", since_true=True),
    ConditionType("Evicting", (CLAIMS,), "The VM should leave its node", "The VM stays on its node", while_true=True),
    ConditionType("Active", (MIGRATION_POLICIES,), "The policy can win", "The policy cannot win"),
    ConditionType(
        "Enforced", (MIGRATION_POLICIES,), "KubeVirt uses all its settings", "KubeVirt does not use all its settings"
    ),
)
CONDITIONS = {each.name: each for each in _ALL}
WHILE_TRUE = frozenset(each.name for each in _ALL if each.while_true)
SINCE_TRUE = frozenset(each.name for each in _ALL if each.since_true)
NOTED = tuple(each.name for each in _ALL if each.noted)


def conditions_of(kind: Kind) -> Iterator[ConditionType]:
    return (each for each in _ALL if kind.plural in {found.plural for found in each.kinds})


def presence(condition: ConditionType, kind: Kind) -> str:
    """When an object of the kind has the condition. A replica set has its conditions only while they are True, apart
    from Ready, as one of Kubernetes does."""
    if condition.while_true or (kind.plural == REPLICA_SETS.plural and condition.name != "Ready"):
        return "only while it is `True`"
    return condition.only or ("since it was first `True`" if condition.since_true else "always")


def describe_conditions(kind: Kind) -> str:
    """The description of `status.conditions` of the kind."""
    *names, last = (each.name for each in conditions_of(kind))
    return f"Conditions of the object: {', '.join(names)} and {last}."
