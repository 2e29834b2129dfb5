"""The PodDisruptionBudget of a warm pool: for which claimed VMs a drain waits, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.sets.eviction_budgets import Refusal
from controllers.shared.evictions import EvictionBudget, VMIChoice, selector
from controllers.warmpool.actions import BudgetAction, SetEvictionBudget
from controllers.warmpool.evictions import seconds_until_allowed
from controllers.warmpool.plan import plan
from controllers.warmpool.reasons import WarmPoolReason as Reason
from controllers.warmpool.snapshot import EvictionFacts, WarmPoolSnapshot
from controllers.warmpool.status import status
from controllers.warmpool.status_events import status_events
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from tests.controllers.warmpool.builders import NOW, UID, a_pool, a_snapshot, a_vm, a_vmi, ago

LABELS = {meta.WARM_POOL: "web"}
OWN = "u-web.claims"
"""UID of the budget of the pool"""
EARLIER = "web-claims"
"""The name of the budget in clusters that had Poolhouse before its names had a dot"""
EC2 = {
    "template": None,
    "ec2": {"imageID": "ami-1", "subnets": ["subnet-1"], "keyPair": "k", "securityGroups": [], "instanceType": "m"},
}


def claimed(name: str, state: WarmState = WarmState.IN_USE, *, of: dict[str, Any] | None = None, **vmi: Any) -> WarmVM:
    labels = {meta.WARM_POOL: "web", "app": "ci"}
    return a_vm(name, state, vmi=a_vmi(name=f"web-{name}", uid=f"run-{name}", labels=labels, **vmi), **(of or {}))


def seen(
    *vms: WarmVM, budgets: tuple[EvictionBudget, ...] | None = (), begun: dict[str, float] | None = None, **policy: Any
) -> WarmPoolSnapshot:
    facts = EvictionFacts(budgets, ClusterSettings(), {uid: ago(seconds) for uid, seconds in (begun or {}).items()})
    return a_snapshot(a_pool(0, claimPolicy=policy), *vms, evictions=facts)


def deleted(observed: WarmPoolSnapshot) -> WarmPoolSnapshot:
    return replace(observed, pool=replace(observed.pool, deleting=True))


def budget(
    *names: str, name: str = "web.claims", owner: str = UID, least: int | None = None, **labels: str
) -> EvictionBudget:
    pods = (
        selector(LABELS, VMIChoice("In", tuple(f"run-{each}" for each in names)))
        if not labels
        else {"matchLabels": labels}
    )
    return EvictionBudget("ns", name, f"u-{name}", owner, min_available=len(names) or least, selector=pods)


def outline(observed: WarmPoolSnapshot) -> list[Any]:
    found = [each for each in plan(observed, NOW).actions if isinstance(each, BudgetAction)]
    return [(a.uid, a.min_available, *a.vmis.uids) if isinstance(a, SetEvictionBudget) else "delete" for a in found]


def refused(observed: WarmPoolSnapshot, wait: float = 0.0) -> WarmPoolSnapshot:
    return replace(observed, evictions=replace(observed.evictions, refusal=Refusal("denied", wait)))


A, B, BOUND = claimed("a"), claimed("b"), claimed("a", WarmState.ALLOCATING)
MOVED = claimed("b", eviction_strategy="LiveMigrate")


@pytest.mark.parametrize(
    ("observed", "actions"),
    [
        pytest.param(seen(A, B), [("", 2, "run-a", "run-b")], id="a drain waits for all claimed VMs"),
        pytest.param(seen(B, A, budgets=(budget("a", "b"),)), [], id="it is in step"),
        pytest.param(seen(A, B, budgets=(budget("a"),)), [(OWN, 2, "run-a", "run-b")], id="one more is claimed"),
        pytest.param(seen(A, budgets=(budget("a", "b"),)), [(OWN, 1, "run-a")], id="a claim has ended"),
        pytest.param(seen(budgets=(budget("a"),)), ["delete"], id="the last claim has ended"),
        pytest.param(seen(BOUND), [("", 1, "run-a")], id="a VM that is being handed over"),
        pytest.param(seen(a_vm("w")), [], id="a waiting VM is evicted at once, and replaced"),
        pytest.param(seen(A, MOVED), [("", 1, "run-a")], id="an eviction moves one of them"),
        pytest.param(seen(claimed("a", migrating=True)), [("", 2, "run-a")], id="a VM that migrates has two Pods"),
        pytest.param(seen(claimed("a", phase="Failed")), [], id="its guest has stopped already"),
        pytest.param(seen(claimed("a", of={"deleting": True})), [], id="its claim has ended, and it is deleted"),
        pytest.param(deleted(seen(A, budgets=(budget("a"),))), ["delete"], id="the pool is deleted, its claims stay"),
        pytest.param(seen(A, B, evictionBudget="Disabled"), [], id="it is disabled"),
        pytest.param(seen(A, budgets=(budget("a"),), evictionBudget="Disabled"), ["delete"], id="a disabled one goes"),
        pytest.param(seen(A, B, begun={"a": 599.0}), [("", 2, "run-a", "run-b")], id="the delay is not over"),
        pytest.param(seen(A, B, begun={"a": 600.0}), [("", 1, "run-b")], id="the delay of one is over"),
        pytest.param(seen(A, begun={"a": 60.0}, evictionDelaySeconds=60), [], id="the pool's own delay is over"),
        pytest.param(seen(A, B, budgets=(budget("b"),), begun={"b": 9e3}), [(OWN, 1, "run-a")], id="b's delay is over"),
        pytest.param(seen(A, budgets=(budget(app="x"),)), ["delete"], id="somebody changed its labels"),
        pytest.param(seen(A, budgets=(replace(budget("a"), min_available=None),)), [(OWN, 1, "run-a")], id="no limit"),
        pytest.param(seen(A, budgets=(budget(name="mine", owner="", app="ci"),)), [], id="another selects the Pod"),
        pytest.param(
            seen(A, budgets=(budget("a"), budget(name="mine", owner="", app="ci"))), ["delete"], id="the own one yields"
        ),
        pytest.param(seen(A, budgets=(budget(name="db", owner="", app="db"),)), [("", 1, "run-a")], id="other Pods"),
        pytest.param(seen(A, budgets=(budget(name="web.claims", owner="x", app="db"),)), [], id="the name is taken"),
        pytest.param(
            seen(A, budgets=(budget(name="web-claims", owner="x", app="db"),)),
            [("", 1, "run-a")],
            id="the VirtualMachinePool web-claims has a budget",
        ),
        pytest.param(
            seen(A, B, budgets=(budget("a", name=EARLIER),)),
            [("u-web-claims", 2, "run-a", "run-b")],
            id="a budget keeps its earlier name",
        ),
        pytest.param(seen(budgets=(budget("a", name=EARLIER),)), ["delete"], id="a budget with its earlier name goes"),
        pytest.param(
            seen(A, budgets=(replace(budget("a", name=EARLIER, owner=""), abandoned=True),)),
            ["delete"],
            id="one of the earlier name without an owner is made again",
        ),
        pytest.param(seen(A, budgets=None), [], id="budgets are unknown"),
        pytest.param(
            replace(seen(A), evictions=EvictionFacts((budget("b"),))), [], id="the strategy of the cluster is unknown"
        ),
        pytest.param(
            replace(seen(A), pool=a_pool(0, paused=True)), [("", 1, "run-a")], id="a paused pool is drained too"
        ),
        pytest.param(replace(seen(A), pool=a_pool(0, deletionTimestamp=ago(1))), [], id="the pool is deleted"),
        pytest.param(refused(seen(A), wait=9), [], id="the API server has refused it, and the pause lasts"),
        pytest.param(refused(seen(A)), [("", 1, "run-a")], id="the pause is over"),
        pytest.param(replace(seen(A), pool=a_pool(0, **EC2)), [], id="EC2 instances have no Pods"),
    ],
)
def test_the_budget_is_in_step_with_the_claims(observed: WarmPoolSnapshot, actions: list[Any]) -> None:
    assert outline(observed) == actions


@pytest.mark.parametrize(
    ("observed", "reason", "word"),
    [
        pytest.param(seen(A), None, "", id="none"),
        pytest.param(
            seen(A, budgets=(budget(name="mine", owner="", least=1, app="ci"),)),
            Reason.FOREIGN_EVICTION_BUDGET,
            "PodDisruptionBudget mine selects Pods of the pool, and no Pod may have two; delete it, or set"
            " spec.claimPolicy.evictionBudget: Disabled",
            id="two budgets",
        ),
        pytest.param(
            seen(A, budgets=(budget(name="web.claims", owner="x", app="db"),)),
            Reason.FOREIGN_EVICTION_BUDGET,
            "has its name",
            id="the name is taken",
        ),
        *(
            pytest.param(
                seen(vm, budgets=(replace(budget(name="mine", owner="", app="ci"), min_available=None),), **spec),
                Reason.FOREIGN_EVICTION_BUDGET,
                "mine selects Pods of the pool and allows no eviction",
                id=f"a percentage stops the drain of a {what}",
            )
            for what, vm, spec in (
                ("claimed VM", A, {}),
                ("claimed VM without a budget", A, {"evictionBudget": "Disabled"}),
                ("waiting VM", claimed("w", WarmState.READY), {}),
            )
        ),
        pytest.param(seen(A, budgets=None), Reason.EVICTION_BUDGETS_UNREADABLE, "cannot list", id="no right"),
        pytest.param(seen(a_vm("w"), budgets=None), None, "", id="no right, and no claim"),
        pytest.param(
            replace(seen(A), evictions=EvictionFacts(())),
            Reason.EVICTION_STRATEGY_UNKNOWN,
            "no KubeVirt object that it may read, which has the evictionStrategy of VMs without one: a drain may stop",
            id="the strategy of the cluster is unknown",
        ),
        pytest.param(
            replace(seen(A), evictions=EvictionFacts((budget("a"),))),
            Reason.EVICTION_STRATEGY_UNKNOWN,
            "its PodDisruptionBudget web.claims stays as it is",
            id="it is unknown since the budget exists",
        ),
        pytest.param(replace(seen(MOVED), evictions=EvictionFacts(())), None, "", id="the VM has a strategy"),
        pytest.param(
            refused(seen(A)),
            Reason.EVICTION_BUDGET_REFUSED,
            "cannot create PodDisruptionBudget web.claims, so that a drain may stop all VMs of a node at once: denied",
            id="a policy refuses it",
        ),
        pytest.param(
            refused(seen(A, B, budgets=(budget("a"),))),
            Reason.EVICTION_BUDGET_REFUSED,
            "cannot change PodDisruptionBudget web.claims, which stays as it is: denied",
            id="a policy refuses its change",
        ),
        pytest.param(
            refused(seen(budgets=(budget("a"),))),
            Reason.EVICTION_BUDGET_REFUSED,
            "cannot delete PodDisruptionBudget web.claims, although it has no claimed VM for which a drain waits: d",
            id="a policy refuses its deletion",
        ),
        pytest.param(refused(seen(A, budgets=(budget("a"),))), None, "", id="somebody has written what was refused"),
    ],
)
def test_the_condition_names_what_is_missing(observed: WarmPoolSnapshot, reason: Reason | None, word: str) -> None:
    fresh = status(observed, NOW, plan(observed, NOW).budget)
    found = next((each for each in fresh.conditions if each.type == "EvictionBudgetFailure"), None)
    if reason is None:
        assert found is None
        return
    assert (found.status, found.reason) == ("True", reason)
    assert word in (found.message or "")
    told = {each.reason for each in status_events(observed.pool.status, fresh)}
    assert (reason in told) is (reason in (Reason.FOREIGN_EVICTION_BUDGET, Reason.EVICTION_BUDGET_REFUSED))


def test_the_plan_returns_when_a_delay_ends() -> None:
    observed = seen(A, B, begun={"a": 590.0, "b": 700.0})
    assert seconds_until_allowed(observed, NOW) == 10
    assert plan(observed, NOW).requeue_seconds == 10
    assert seconds_until_allowed(seen(A, begun={"a": 700.0}), NOW) is None
