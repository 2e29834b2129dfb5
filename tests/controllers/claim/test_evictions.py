"""What a claim says while the node of its VM is drained."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controllers.claim import steps
from controllers.claim.evictions import EVICTING, evicting_since
from controllers.claim.plan import plan
from controllers.claim.snapshot import ClaimSnapshot
from controllers.claim.status import released
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.controllers.claim.builders import a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import CORDONED, NOW, a_pool, a_vmi

Json = dict[str, Any]


def micro(seconds_ago: float) -> str:
    return format_micro_time(NOW - timedelta(seconds=seconds_ago))


def vm(*, cordoned: bool = True, run_strategy: str = "Always", **of_vmi: Any) -> WarmVM:
    found = claimed_vm("m", WarmState.IN_USE, vmi=a_vmi(name="web-m", **of_vmi), run_strategy=run_strategy)
    return replace(found, node=CORDONED) if cordoned else found


def evicting(reason: str, since: float = 60.0) -> Json:
    return {"type": EVICTING, "status": "True", "reason": reason, "lastTransitionTime": micro(since), "message": "m"}


def seen(
    machine: WarmVM, before: Json | None = None, pool: WarmPool | None = None, expires: float | None = None
) -> ClaimSnapshot:
    """A claim that has its VM, with the condition `before`. It expires after so many seconds."""
    conditions = [before] if before is not None else []
    given = bound_status("m", phase="Ready", readyAt=micro(100), observedGeneration=1, conditions=conditions)
    if expires is not None:
        given["expiresAt"] = micro(-expires)
    return snapshot(a_claim(status=given), machine, pool=pool or a_pool(), cluster=ClusterSettings())


def taken(pool: str) -> WarmPool:
    message = f"PodDisruptionBudget {pool} selects Pods of the pool"
    failure = {"type": "EvictionBudgetFailure", "status": "True", "reason": "ForeignEvictionBudget", "message": message}
    return a_pool(status={"conditions": [{**failure, "lastTransitionTime": micro(1)}]})


DISABLED, DRAINING = a_pool(claimPolicy={"evictionBudget": "Disabled"}), evicting("NodeDraining")
STARTING: Json = {"phase": "Scheduling", "conditions": frozenset[str]()}


@pytest.mark.parametrize(
    ("observed", "reason", "words"),
    [
        pytest.param(seen(vm(cordoned=False)), "", "", id="its node stays"),
        pytest.param(
            seen(vm()),
            "NodeDraining",
            "node node-1 is cordoned or drained: a drain waits for this claim until 12:10:00 UTC",
            id="the node is cordoned",
        ),
        pytest.param(seen(vm(), DRAINING), "NodeDraining", "until 12:09:00 UTC", id="since a minute"),
        pytest.param(seen(vm(), expires=300), "NodeDraining", "waits until the claim expires", id="it ends soon"),
        pytest.param(seen(vm(), expires=3000), "NodeDraining", "until 12:10:00 UTC", id="it ends later"),
        pytest.param(
            seen(vm(), evicting("NodeDraining", 600)),
            "EvictionAllowed",
            "since 12:00:00 UTC an eviction may stop web-m, and KubeVirt then starts it on another node",
            id="the delay is over",
        ),
        pytest.param(seen(vm(), pool=DISABLED), "EvictionAllowed", "evictionBudget of the pool", id="no delay"),
        pytest.param(seen(vm(), pool=taken("mine")), "EvictionAllowed", "PodDisruptionBudget mine", id="no budget"),
        pytest.param(replace(seen(vm()), pool=None), "EvictionAllowed", "its warm pool is deleted", id="no pool"),
        pytest.param(seen(vm(eviction_strategy="LiveMigrate")), "", "", id="an eviction would move it"),
        pytest.param(
            seen(vm(eviction_strategy="LiveMigrate", evacuated=True)),
            "Evacuating",
            "an eviction moves web-m away from node-1; its guest keeps running",
            id="an eviction moves it",
        ),
        pytest.param(seen(vm(cordoned=False), evicting("Evacuating")), "", "", id="it has moved"),
        pytest.param(seen(vm(cordoned=False), DRAINING), "", "", id="the node was uncordoned"),
        pytest.param(
            seen(vm(cordoned=False, **STARTING), DRAINING),
            "Evicted",
            "web-m was stopped while its node was drained; KubeVirt starts it again on another node",
            id="an eviction has stopped it",
        ),
        pytest.param(seen(replace(vm(), vmi=None, node=None), DRAINING), "Evicted", "was stopped", id="it has no VMI"),
        pytest.param(seen(vm(cordoned=False, **STARTING)), "", "", id="it restarts for another cause"),
        pytest.param(seen(vm(run_strategy="Halted", **STARTING), DRAINING), "", "", id="its user has stopped it"),
        pytest.param(
            replace(seen(vm(), pool=taken("mine")), cluster=None),
            "EvictionAllowed",
            "PodDisruptionBudget mine",
            id="the strategy of the cluster is unknown, and the pool says so",
        ),
        pytest.param(
            replace(seen(vm(), DRAINING), cluster=None),
            "NodeDraining",
            "until 12:09:00 UTC",
            id="the strategy is unknown to a new leader, which keeps the time",
        ),
    ],
)
def test_a_claim_says_what_a_drain_does_to_its_vm(observed: ClaimSnapshot, reason: str, words: str) -> None:
    step = plan(observed, NOW)
    assert isinstance(step, steps.UpdateStatus)
    found = next((c for c in step.status.conditions if c.type == EVICTING), None)
    assert (found.reason if found is not None else "") == reason
    if found is None:
        assert step.event is None
        return
    assert words in (found.message or "")
    before = next((c.reason for c in observed.claim.status.conditions if c.type == EVICTING), "")
    told = None if reason == before else (reason, "Normal" if reason == "Evacuating" else "Warning")
    assert (None if step.event is None else (step.event.reason, step.event.type)) == told


def test_a_claim_keeps_the_time_of_the_cordon_and_returns_when_the_delay_ends() -> None:
    observed = seen(vm())
    first = plan(observed, NOW)
    assert isinstance(first, steps.UpdateStatus)
    claim = replace(observed.claim, status=first.status)
    assert evicting_since(claim) == format_micro_time(NOW)
    later, after = replace(observed, claim=claim), NOW + timedelta(seconds=590)
    assert plan(later, after) == steps.Requeue(10)
    allowed = plan(later, NOW + timedelta(seconds=600))
    assert isinstance(allowed, steps.UpdateStatus)
    assert allowed.event.reason == "EvictionAllowed"
    assert evicting_since(replace(claim, status=allowed.status)) == format_micro_time(NOW)


def test_a_claim_that_ends_no_longer_says_it() -> None:
    assert not any(c.type == EVICTING for c in released(seen(vm(), DRAINING), NOW).conditions)
