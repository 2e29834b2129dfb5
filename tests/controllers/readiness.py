"""Objects of each kind with statuses that the controllers write, and what kstatus and Argo CD make of them.

The tests of kstatus' rules, of the Argo CD scripts and of `poolhouse overview` use the same objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from controllers.claim import status as claim_status
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Failure as ClaimFailure
from controllers.migrationpolicy.status import status as policy_status
from controllers.pool.plan import plan as plan_pool
from controllers.pool.pool_readiness import invalid_spec_status as invalid_pool_status
from controllers.pool.pools import parse_pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.pool.vm_snapshots import VMSnapshot, snapshot_name
from controllers.replicaset.observe import ReplicaSetSnapshot
from controllers.replicaset.plan import RETRIED_FOR, replica_set_status
from controllers.replicaset.plan import plan as plan_set
from controllers.sets.write_batches import Failure
from controllers.shared.invalid_spec import InvalidSpec
from controllers.warmpool.agent import application_health
from controllers.warmpool.backends import Health
from controllers.warmpool.rate_limit import FailureBackoff
from controllers.warmpool.snapshot import WarmPoolSnapshot
from controllers.warmpool.status import status as warm_pool_status
from controllers.warmpool.status import unavailable_status
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import CLAIM, MIGRATION_POLICY, POOL, REPLICA_SET, WARM_POOL
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.model import Model
from poolhouse.api.kinds.pool import UpdateAbort
from poolhouse.api.kinds.warm_states import WarmState
from tests.builders import manifest
from tests.controllers.claim import builders as claims
from tests.controllers.migrationpolicy import builders as policies
from tests.controllers.pool import builders as pools
from tests.controllers.replicaset import builders as sets
from tests.controllers.warmpool import builders as warm

Json = dict[str, Any]
KSTATUS_OF = {"Healthy": "Current", "Progressing": "InProgress", "Suspended": "InProgress", "Degraded": "Failed"}


class Row(NamedTuple):
    name: str
    document: Json
    health: str
    """in Argo CD's terms"""
    reason: str
    """of the condition Ready; empty without one"""

    @property
    def kstatus(self) -> str:
        return KSTATUS_OF[self.health]


def document(kind: Kind, status: Model, *, generation: int = 1, **metadata: Any) -> Json:
    spec = {"replicas": 1} if kind.scale else {}
    metadata = {"name": "web", "namespace": "ns", "generation": generation, **metadata}
    return manifest(kind, spec=spec, status=status.json(), **metadata)


def _pool(name: str, observed: PoolSnapshot, health: str, reason: str) -> Row:
    found = pool_status(observed, plan_pool(observed, pools.NOW), pools.NOW)
    return Row(f"pool: {name}", document(POOL, found), health, reason)


def _set(name: str, observed: ReplicaSetSnapshot, health: str, reason: str) -> Row:
    found = replica_set_status(observed, plan_set(observed, sets.NOW), sets.NOW)
    return Row(f"replica set: {name}", document(REPLICA_SET, found), health, reason)


def _policy(name: str, observed: Any, health: str, reason: str) -> Row:
    found = policy_status(observed, pools.NOW)
    return Row(f"policy: {name}", document(MIGRATION_POLICY, found), health, reason)


def _warm(name: str, observed: WarmPoolSnapshot, health: str, reason: str) -> Row:
    return Row(f"warm pool: {name}", document(WARM_POOL, warm_pool_status(observed, warm.NOW)), health, reason)


def _unlisted(name: str, last: Json, health: str, *, refused: bool) -> Row:
    """A warm pool whose VMs cannot be listed."""
    found = unavailable_status(warm.a_pool(1, status=last), "EC2 lists nothing", warm.NOW, refused=refused)
    return Row(f"warm pool: not listed, {name}", document(WARM_POOL, found), health, "BackendUnavailable")


def _claim(name: str, found: Model, health: str, reason: str) -> Row:
    return Row(f"claim: {name}", document(CLAIM, found), health, reason)


def _invalid_pool() -> Model:
    found = parse_pool(pools.document("many"))
    assert isinstance(found, InvalidSpec)
    return invalid_pool_status(found, pools.NOW)


def _canary(*vms: Any) -> PoolSnapshot:
    """A pool whose update pauses after its first VM."""
    steps = [{"setReplicas": 1}, {"pause": {}}]
    strategy = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}, "steps": steps}}
    status = {"currentRevision": pools.OLD.name}
    return pools.snapshot(pools.a_pool(2, maxUnavailable=2, updateStrategy=strategy, status=status), *vms)


def _old(ordinal: int) -> Any:
    name = f"web-{ordinal}"
    return pools.vm(ordinal, revision=pools.OLD.label, vmi=pools.vmi(name, revision=pools.OLD.label))


def _unchanged(last_progress: str, unavailable: int = 0) -> Json:
    """The status of a pool that has made no progress since then."""
    return {
        "updateRevision": pools.REVISION.name,
        "observedGeneration": 1,
        "unavailableReplicas": unavailable,
        "lastProgressTime": last_progress,
    }


def _overdue_pool() -> PoolSnapshot:
    down = pools.vm(1, ready=False, printable_status="ErrImagePull")
    return pools.snapshot(pools.a_pool(1, status=_unchanged(pools.ago(700), 1)), down)


def _misfit_pool(last_progress: str) -> PoolSnapshot:
    """A pool with a VM of another name, which cannot get the template."""
    other = pools.vm("db-7", revision=pools.OLD.label)
    return pools.snapshot(pools.a_pool(2, status=_unchanged(last_progress)), pools.vm(1), other)


def _budget_pool(last_progress: str) -> PoolSnapshot:
    """A pool with a VM too many, which may be deleted once another is available."""
    protected = (pools.vm(n, ready=False, scale_in="Protect") for n in (2, 3))
    pool = pools.a_pool(2, maxUnavailable=1, status=_unchanged(last_progress, 2))
    return pools.snapshot(pool, pools.vm(1), *protected)


def _refused_pool(last_progress: str) -> PoolSnapshot:
    pool = pools.a_pool(1, status=_unchanged(last_progress, 1))
    return pools.snapshot(pool, failure=Failure("FailedCreate", "no"))


def _unsaved_pool(last_progress: str, **given: Any) -> PoolSnapshot:
    """A pool whose VM must have a snapshot before its update."""
    strategy = {"proactive": {"snapshotBeforeUpdate": True}}
    pool, old = pools.a_pool(1, updateStrategy=strategy, status=_unchanged(last_progress)), _old(1)
    failed = VMSnapshot("default", snapshot_name(old), "u", vm_uid=old.uid, created_at=last_progress, failed=True)
    return pools.snapshot(pool, old, vm_snapshots=(failed,), **given)


def _refused_set(message: str) -> ReplicaSetSnapshot:
    known = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailureCreate",
        "message": message,
        "lastTransitionTime": format_time(sets.NOW - RETRIED_FOR),
    }
    return sets.snapshot(sets.a_set(1, status={"conditions": [known]}), failure=Failure("FailureCreate", message))


def _with_application(report: Json | None) -> Model:
    """The status of a claim whose VM runs and whose agent reports this, or does not answer."""
    vm, no_answer = claims.claimed_vm(), Health("Failed", "NoAnswer", "no answer")
    handed_over = claim_status.bound_and_ready(claims.snapshot(claims.a_claim(), vm), vm, warm.NOW)
    health = no_answer if report is None else application_health(report)
    observed = claims.snapshot(claims.a_claim(status=handed_over.json()), vm, application_health=health)
    return claim_status.ready(observed, vm, warm.NOW)


def _rows() -> list[Row]:
    p, s, w, c = pools, sets, warm, claims
    abort = UpdateAbort(reason="AbortedByUser", message="aborted", time=p.ago(5))
    pending = ClaimFailure(ClaimReason.QUOTA_EXCEEDED, "2 of 2 claims")
    snapshot, vm = c.snapshot(), c.claimed_vm()
    bound = c.snapshot(c.a_claim(status=c.bound_status("m")), vm)
    handed_over = claim_status.bound_and_ready(snapshot, vm, w.NOW)
    in_use = c.snapshot(c.a_claim(status=handed_over.json()), vm)
    reconciling, stalled = (
        {"conditions": [{"type": each, "status": "True"}], "observedGeneration": 1}
        for each in ("Reconciling", "Stalled")
    )
    return [
        _pool("complete", p.snapshot(2, p.vm(1), p.vm(2)), "Healthy", "Ready"),
        _pool("no VMs are wanted", p.snapshot(0), "Healthy", "Ready"),
        _pool("VMs are meant to be halted", p.snapshot(1, p.halted(1)), "Healthy", "Ready"),
        _pool(
            "the strategy leaves old VMs",
            p.snapshot(p.a_pool(1, updateStrategy={"opportunistic": {}}), _old(1)),
            "Healthy",
            "Ready",
        ),
        _pool("new", p.snapshot(2), "Progressing", "ScalingVMs"),
        _pool("one VM of many is down", p.snapshot(9, *map(p.vm, range(1, 9))), "Progressing", "ScalingVMs"),
        _pool("updating", p.snapshot(2, p.vm(1), _old(2)), "Progressing", "UpdatingVMs"),
        _pool("paused and complete", p.snapshot(p.a_pool(1, paused=True), p.vm(1)), "Healthy", "PoolPaused"),
        _pool("paused with a missing VM", p.snapshot(p.a_pool(2, paused=True), p.vm(1)), "Suspended", "PoolPaused"),
        _pool("paused with a VM too many", p.snapshot(p.a_pool(0, paused=True), p.vm(1)), "Suspended", "PoolPaused"),
        _pool("a step pauses the update", _canary(p.vm(1), _old(2)), "Suspended", "UpdatePaused"),
        _pool("refused", p.snapshot(1, failure=Failure("FailedCreate", "no")), "Progressing", "FailedCreate"),
        _pool("refused until the deadline", _refused_pool(p.ago(601)), "Degraded", "FailedCreate"),
        _pool("refused before the deadline", _refused_pool(p.ago(599)), "Progressing", "FailedCreate"),
        _pool(
            "would use a disk of another owner",
            p.snapshot(1, failure=Failure("DiskConflict", "root")),
            "Degraded",
            "DiskConflict",
        ),
        _pool("deadline exceeded", _overdue_pool(), "Degraded", "ProgressDeadlineExceeded"),
        _pool("does not fit a VM until the deadline", _misfit_pool(p.ago(601)), "Degraded", "TemplateDoesNotFit"),
        _pool("does not fit a VM", _misfit_pool(p.ago(599)), "Progressing", "TemplateDoesNotFit"),
        _pool("its snapshots fail", _unsaved_pool(p.ago(599)), "Progressing", "SnapshotFailed"),
        _pool(
            "its snapshots fail until the deadline", _unsaved_pool(p.ago(601)), "Degraded", "ProgressDeadlineExceeded"
        ),
        _pool(
            "there are no snapshots", _unsaved_pool(p.ago(1), serves_snapshots=False), "Degraded", "SnapshotsNotServed"
        ),
        _pool(
            "aborted",
            replace(p.snapshot(1, _old(1)), revision=p.OLD, aborted=(p.REVISION, abort)),
            "Degraded",
            "UpdateAborted",
        ),
        _pool(
            "scale-in is blocked",
            p.snapshot(p.a_pool(0, scaleInStrategy={"unmanaged": {}}), p.vm(1)),
            "Degraded",
            "NoCandidates",
        ),
        _pool("scale-in waits", _budget_pool(p.ago(599)), "Progressing", "WaitingForDisruptionBudget"),
        _pool("scale-in waits until the deadline", _budget_pool(p.ago(601)), "Degraded", "ProgressDeadlineExceeded"),
        Row("pool: invalid", document(POOL, _invalid_pool()), "Degraded", "InvalidSpec"),
        _set("complete", s.snapshot(1, s.vmi("a")), "Healthy", "Ready"),
        _set("no VMIs are wanted", s.snapshot(0), "Healthy", "Ready"),
        _set("new", s.snapshot(1), "Progressing", "ScalingVMIs"),
        _set("starting", s.snapshot(1, s.starting("a")), "Progressing", "ScalingVMIs"),
        _set("too many", s.snapshot(0, s.vmi("a")), "Progressing", "ScalingVMIs"),
        _set("paused and complete", s.snapshot(s.a_set(1, paused=True), s.vmi("a")), "Healthy", "Ready"),
        _set("paused with a missing VMI", s.snapshot(s.a_set(1, paused=True)), "Suspended", "Paused"),
        _set("refused", s.snapshot(1, failure=Failure("FailureCreate", "no")), "Progressing", "FailureCreate"),
        _set("refused for ten minutes", _refused_set("no"), "Degraded", "FailureCreate"),
        _set("under a quota for ten minutes", _refused_set("exceeded quota: few"), "Progressing", "FailureCreate"),
        _set("VMIs end early", s.snapshot(1, s.ended("a", attempt=2, ran=3)), "Degraded", "FailureStart"),
        _policy("enforced", policies.given(enforcing=policies.enforcing()), "Healthy", "InSync"),
        _policy("without KubeVirt", policies.given(served=False), "Degraded", "CRDNotInstalled"),
        _policy("a duplicate", policies.given(older="old"), "Degraded", "SameSelectors"),
        _policy("refused", policies.given(refusal="no"), "Progressing", "FailedUpdate"),
        _warm("enough VMs", w.a_snapshot(1, w.a_vm("a")), "Healthy", "Ready"),
        _warm("no VMs are wanted", w.a_snapshot(0), "Healthy", "Ready"),
        _warm(
            "one VM of eight was claimed",
            w.a_snapshot(8, *(w.a_vm(f"v{n}") for n in range(7)), w.a_vm("c", WarmState.IN_USE)),
            "Healthy",
            "Ready",
        ),
        _warm("new", w.a_snapshot(1), "Progressing", "Scaling"),
        _warm("an update", w.a_snapshot(1, w.a_vm("a", of=w.OLD)), "Progressing", "Updating"),
        _warm(
            "old VMs wait for claims",
            w.a_snapshot(w.a_pool(1, updateStrategy={"type": "OnReplenish"}), w.a_vm("a", of=w.OLD)),
            "Healthy",
            "Ready",
        ),
        _warm("paused and full", w.a_snapshot(w.a_pool(1, paused=True), w.a_vm("a")), "Healthy", "Paused"),
        _warm("paused and empty", w.a_snapshot(w.a_pool(1, paused=True)), "Suspended", "Paused"),
        _warm(
            "a VM is claimed, and there may be no other",
            w.a_snapshot(w.a_pool(2, maxTotal=2), w.a_vm("a"), w.a_vm("b", WarmState.IN_USE)),
            "Healthy",
            "MaxTotalReached",
        ),
        _warm(
            "all VMs are claimed",
            w.a_snapshot(w.a_pool(1, maxTotal=1), w.a_vm("a", WarmState.IN_USE)),
            "Suspended",
            "MaxTotalReached",
        ),
        _warm(
            "refused",
            w.a_snapshot(1, failures=FailureBackoff(2, "FailedCreate", "no", w.ago(-5))),
            "Progressing",
            "FailedCreate",
        ),
        _warm(
            "a stalled update",
            w.a_snapshot(w.a_pool(2, status=w.OVERDUE), w.a_vm("a", of=w.OLD), w.a_vm("b", w.NEW)),
            "Degraded",
            "ProgressDeadlineExceeded",
        ),
        _unlisted("the last status was Reconciling", reconciling, "Degraded", refused=True),
        _unlisted("the last status was Stalled", stalled, "Progressing", refused=False),
        _claim("an obstacle", claim_status.pending(snapshot, pending, w.NOW), "Progressing", "QuotaExceeded"),
        _claim("queued", claim_status.queued(snapshot, w.NOW), "Progressing", "Queued"),
        _claim("bound", claim_status.bound(snapshot, vm, "Cold", "empty", w.NOW), "Progressing", "Activating"),
        _claim("handed over", handed_over, "Healthy", "HandedOver"),
        _claim(
            "its VM is down",
            claim_status.ready(in_use, replace(vm, vmi=None), w.NOW),
            "Progressing",
            "VMNotReady",
        ),
        _claim("its application runs", _with_application({"phase": "Running"}), "Healthy", "HandedOver"),
        _claim("its application starts", _with_application({"phase": "Pending"}), "Healthy", "HandedOver"),
        _claim("its application failed", _with_application({"phase": "Failed"}), "Degraded", "ApplicationFailed"),
        _claim("its agent is away", _with_application(None), "Progressing", "NoAnswer"),
        _claim("tried again", claim_status.retrying(bound, pending, w.NOW), "Progressing", "QuotaExceeded"),
        _claim("releasing", claim_status.releasing(in_use, w.NOW), "Progressing", "Released"),
        _claim("released", claim_status.released(in_use, w.NOW), "Healthy", ""),
        _claim("expired", claim_status.expired(in_use, w.NOW), "Healthy", ""),
        _claim("failed", claim_status.failed(bound, pending, w.NOW), "Degraded", "QuotaExceeded"),
    ]


ROWS = _rows()
