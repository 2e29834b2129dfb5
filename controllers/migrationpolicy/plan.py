"""Plans the changes of KubeVirt's policy that enforces a policy, and of the label of a VMI."""

from dataclasses import dataclass

from controllers.migrationpolicy.observe import EnforcingPolicy, PolicySnapshot, VMILabels
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.migrationpolicies.upstream import upstream_spec


@dataclass(frozen=True)
class CreateUpstream:
    spec: Json
    reason: str = "KubeVirt has no policy of this name"


@dataclass(frozen=True)
class RepairUpstream:
    uid: str
    spec: Json
    reason: str


@dataclass(frozen=True)
class DeleteUpstream:
    uid: str
    reason: str = "the policy is not active"


@dataclass(frozen=True)
class LabelVMI:
    uid: str
    policy: str | None
    """None removes the label."""
    reason: str


Action = CreateUpstream | RepairUpstream | DeleteUpstream


def plan(snapshot: PolicySnapshot) -> Action | None:
    found = snapshot.enforcing
    if not snapshot.served or snapshot.policy.deleting or (found is not None and found.deleting):
        return None
    if not snapshot.active:
        return DeleteUpstream(found.uid) if found and is_ours(snapshot, found) else None
    spec = found.spec if found is not None else {}
    wanted = upstream_spec(snapshot.policy.name, snapshot.policy.spec, snapshot.cluster, spec)
    if found is None:
        return CreateUpstream(wanted)
    if not is_ours(snapshot, found):
        return RepairUpstream(found.uid, wanted, "its owner reference was missing") if is_orphaned(found) else None
    return RepairUpstream(found.uid, wanted, _difference(found.spec, wanted)) if found.spec != wanted else None


def plan_label(vmi: VMILabels, winner: str | None) -> LabelVMI | None:
    if vmi.winner == winner or not vmi.active:
        return None
    if winner is None:
        return LabelVMI(vmi.uid, None, "no policy matches it")
    return LabelVMI(vmi.uid, winner, f"{winner} wins" + (f" instead of {vmi.winner}" if vmi.winner else ""))


def is_ours(snapshot: PolicySnapshot, found: EnforcingPolicy) -> bool:
    """Whether the policy owns KubeVirt's policy, by UID: other clients can use the same name and labels."""
    return found.owner == snapshot.policy.uid


def is_orphaned(found: EnforcingPolicy) -> bool:
    """Whether Poolhouse created KubeVirt's policy, and its owner no longer exists."""
    return found.managed and not found.owner


def _difference(found: Json, wanted: Json) -> str:
    fields = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    return f"{', '.join(fields)} differed from the policy"
