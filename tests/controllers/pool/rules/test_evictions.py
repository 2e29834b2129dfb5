"""The PodDisruptionBudget of a pool: when it has one, and how many VMs it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.actions import Action, DeleteEvictionBudget, SetEvictionBudget
from controllers.pool.plan import plan
from controllers.pool.reasons import PoolReason
from controllers.pool.rules.eviction_budget import desired_budget
from controllers.pool.rules.evictions import keep_budget
from controllers.pool.simulate import simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.sets.eviction_budgets import Refusal, foreign_budget
from controllers.shared.evictions import EvictionBudget, VMIChoice, build_budget, parse_budget, selector, treatment
from controllers.shared.vm import VM
from controllers.shared.vmi import parse_vmi
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_updates import RunningGuest
from tests.controllers.pool.builders import (
    NOW,
    OLD,
    REVISION,
    a_pool,
    ago,
    halted,
    leaving,
    snapshot,
    template,
    vm,
    vmi,
)

V1_5, V1_9 = (ClusterSettings(versions=(version,)) for version in ("v1.5.0", "v1.9.0"))
OURS = selector({meta.POOL: "web"})
RUNS = replace(REVISION, run_strategy="Always")


def running(ordinal: int, strategy: str = "", **of_vmi: Any) -> VM:
    found = vmi(f"web-{ordinal}", revision=REVISION.label, phase="Running", eviction_strategy=strategy, **of_vmi)
    return vm(ordinal, vmi=replace(found, labels={**found.labels, meta.POOL: "web", "app": "shop"}))


FOUR = tuple(map(running, range(1, 5)))
MOVED = running(1, "LiveMigrate")
IF_POSSIBLE = "LiveMigrateIfPossible"
STARTS = running(4, IF_POSSIBLE, ready=False)
"""KubeVirt does not say yet whether it can migrate the VM."""


def movable(ordinal: int) -> VM:
    return running(ordinal, IF_POSSIBLE, conditions=frozenset({"LiveMigratable"}))


def fixed(ordinal: int) -> VM:
    return running(ordinal, IF_POSSIBLE, guest=RunningGuest(not_migratable="a host device"))


def seen(*vms: VM, budgets: tuple[EvictionBudget, ...] | None = (), replicas: int = 4, **spec: Any) -> PoolSnapshot:
    return snapshot(
        a_pool(replicas, **{"maxUnavailable": 1, **spec}), *vms, budgets=budgets, cluster=V1_9, revision=RUNS
    )


def budget(
    name: str = "web", owner: str = "u-web", least: int | None = 3, left_out: tuple[str, ...] = (), **selected: str
) -> EvictionBudget:
    chosen = {"matchLabels": selected} if selected else selector({meta.POOL: "web"}, VMIChoice("NotIn", left_out))
    return EvictionBudget("default", name, f"u-{name}", owner, min_available=least, selector=chosen)


def refused(observed: PoolSnapshot, wait: float = 0.0) -> PoolSnapshot:
    return replace(observed, budget_refusal=Refusal("denied", wait))


SET, DELETE = SetEvictionBudget, DeleteEvictionBudget
MUST_WAIT = "a drain must wait, because 3 of 4 VMs must stay available, and only 3 are available: "
TWO = (
    "PodDisruptionBudget mine selects Pods of the pool, and no Pod may have two; delete it, or set "
    "spec.evictionBudget: Disabled"
)
SAME_NAME = (
    "PodDisruptionBudget web is not the pool's, and has its name; delete it, or set spec.evictionBudget: Disabled"
)
NEVER_ENDS = (
    "PodDisruptionBudget mine selects Pods of the pool and allows no eviction, so that a drain never ends: Kubernetes "
    "computes maxUnavailable or a percentage from the replicas of a Pod's owner, and a VMI has none; delete it, or "
    "give it a number as minAvailable"
)
UNREADABLE = "the controller cannot list PodDisruptionBudgets: a drain may stop all VMs of a node at once"
NO_KUBEVIRT = (
    "the controller finds no KubeVirt object that it may read, which has the evictionStrategy of VMs without one"
)


@pytest.mark.parametrize(
    ("observed", "actions"),
    [
        pytest.param(seen(*FOUR), [("", 3)], id="all but maxUnavailable must stay"),
        pytest.param(seen(*FOUR, maxUnavailable="50%"), [("", 2)], id="a percentage of the replicas"),
        pytest.param(seen(*map(movable, (1, 2, 3)), STARTS), [], id="the start of a VM that can be migrated"),
        pytest.param(seen(*map(fixed, (1, 2, 3)), STARTS, budgets=(budget(),)), [], id="the start of a fixed VM"),
        pytest.param(seen(*FOUR, budgets=(budget(),)), [], id="it is in step"),
        pytest.param(seen(*FOUR, budgets=(budget(least=2),)), [("u-web", 3)], id="the pool has grown"),
        pytest.param(seen(*FOUR, budgets=(budget(least=None),)), [("u-web", 3)], id="somebody wrote a percentage"),
        pytest.param(
            replace(seen(*FOUR), foreign_vmis=("left",)),
            [("", 3, "left")],
            id="a VM that has left the pool makes no room for an eviction",
        ),
        pytest.param(
            replace(seen(*FOUR, budgets=(budget(left_out=("left",)),)), foreign_vmis=("left",)),
            [],
            id="a VM that has left the pool makes no room when it gets ready or migrates",
        ),
        pytest.param(seen(*FOUR, budgets=(budget(left_out=("left",)),)), [("u-web", 3)], id="it is gone, or is back"),
        pytest.param(seen(*FOUR[:3]), [("", 3)], id="a VM that is missing counts: it is about to be created"),
        pytest.param(seen(*FOUR, replicas=3), [("", 2)], id="a VM above replicas does not count"),
        pytest.param(seen(*FOUR[:3], halted(4)), [("", 2)], id="a halted VM does not count"),
        pytest.param(seen(*FOUR[:3], leaving(4)), [("", 3)], id="a deleted VM does not count, but the next one"),
        pytest.param(seen(*FOUR[:3], running(4, migrating=True)), [("", 4)], id="a user migrates a VM: two Pods"),
        pytest.param(seen(*FOUR, budgets=(budget(),), paused=True, maxUnavailable=2), [("u-web", 2)], id="paused"),
        pytest.param(seen(*map(halted, range(1, 5))), [], id="a halted pool has none"),
        pytest.param(seen(*map(halted, range(1, 5)), budgets=(budget(),)), [DELETE], id="a halted pool loses it"),
        pytest.param(seen(running(1), replicas=1), [], id="a pool of one has none: a drain would never end"),
        pytest.param(seen(*FOUR, maxUnavailable=4), [], id="all may be unavailable"),
        pytest.param(seen(*FOUR, budgets=(budget(),), evictionBudget="Disabled"), [DELETE], id="it is disabled"),
        pytest.param(seen(*FOUR, budgets=(budget(app="x"),)), [DELETE], id="it selects other Pods: it is made again"),
        pytest.param(seen(*FOUR, budgets=(budget("mine", "", app="shop"),)), [], id="another selects the same Pods"),
        pytest.param(
            seen(*FOUR, budgets=(budget(), budget("mine", "", app="shop"))), [DELETE], id="it yields to a foreign one"
        ),
        pytest.param(seen(*FOUR, budgets=(budget("db", "", app="db"),)), [("", 3)], id="a budget of other Pods"),
        pytest.param(seen(*FOUR, budgets=(budget("web", "u-x", app="db"),)), [], id="the name is taken"),
        pytest.param(seen(*FOUR, budgets=None), [], id="budgets are unknown"),
        pytest.param(seen(*(running(n, "LiveMigrate") for n in range(1, 5))), [], id="an eviction moves the VMs"),
        pytest.param(seen(*(running(n, "External") for n in range(1, 5))), [], id="another controller moves the VMs"),
        pytest.param(seen(MOVED, *FOUR[1:]), [("", 2, "run-web-1")], id="it moves one of them, which stays available"),
        pytest.param(
            seen(running(1, "LiveMigrate", migrating=True), *FOUR[1:]),
            [("", 2, "run-web-1")],
            id="its second Pod makes no room for an eviction",
        ),
        pytest.param(
            seen(running(1, "LiveMigrate", ready=False), *FOUR[1:]), [("", 3, "run-web-1")], id="it is not available"
        ),
        pytest.param(
            seen(leaving(1, vmi=MOVED.vmi), *FOUR[1:]), [("", 3, "run-web-1")], id="a deleted VM is not available"
        ),
        pytest.param(
            seen(*(running(n, "LiveMigrate") for n in (1, 2, 3)), FOUR[3]), [], id="the VMs that it moves are enough"
        ),
        pytest.param(
            replace(seen(MOVED, *FOUR[1:]), cluster=V1_5),
            [("", 2, "run-web-1")],
            id="an old KubeVirt has a budget for the one that it moves",
        ),
        pytest.param(
            seen(MOVED, *FOUR[1:], budgets=(budget("mine", "", **{meta.KUBEVIRT_CREATED_BY: "run-web-1"}),)),
            [("", 2, "run-web-1")],
            id="a budget of a VM that it moves",
        ),
        pytest.param(replace(seen(*FOUR), cluster=V1_5), [("", 3)], id="an old KubeVirt has none for these"),
        pytest.param(replace(seen(*FOUR, budgets=(budget(least=2),)), cluster=None), [], id="the strategy is unknown"),
        pytest.param(refused(seen(*FOUR), wait=9), [], id="the API server has refused it, and the pause lasts"),
        pytest.param(refused(seen(*FOUR)), [("", 3)], id="the pause is over"),
        pytest.param(seen(*FOUR, deleting=True), [], id="the pool is deleted"),
        pytest.param(seen(*FOUR, deleting=True, budgets=(budget(),)), [DELETE], id="the pool is deleted, its VMs stay"),
        pytest.param(
            seen(*FOUR, budgets=(replace(budget(owner=""), abandoned=True),)), [DELETE], id="an earlier pool left it"
        ),
        pytest.param(
            seen(*FOUR, budgets=(replace(budget(), releases_unready=False),)),
            [("u-web", 3)],
            id="somebody let Pods that are not ready delay a drain",
        ),
    ],
)
def test_the_budget_is_in_step_with_the_pool(observed: PoolSnapshot, actions: list[Any]) -> None:
    def outline(action: Action) -> Any:
        if isinstance(action, SET):
            assert action.vmis.operator == "NotIn"
            return action.uid, action.min_available, *action.vmis.uids
        return type(action)

    assert [outline(each) for each in keep_budget(observed, NOW)] == actions


@pytest.mark.parametrize(
    ("observed", "reason", "message"),
    [
        pytest.param(seen(*FOUR), PoolReason.NO_EVICTION_BUDGET_FAILURE, "", id="none"),
        pytest.param(
            seen(*FOUR, budgets=(budget("mine", "", app="shop"),)), PoolReason.FOREIGN_EVICTION_BUDGET, TWO, id="two"
        ),
        pytest.param(
            seen(*FOUR, budgets=(budget("web", "", app="x"),)), PoolReason.FOREIGN_EVICTION_BUDGET, SAME_NAME, id="name"
        ),
        pytest.param(
            seen(*FOUR, budgets=(budget("mine", "", None, app="shop"),)),
            PoolReason.FOREIGN_EVICTION_BUDGET,
            NEVER_ENDS,
            id="a percentage, which counts no VMIs",
        ),
        *(
            pytest.param(
                seen(*FOUR[:replicas], budgets=(budget("mine", "", None, app="shop"),), replicas=replicas, **spec),
                PoolReason.FOREIGN_EVICTION_BUDGET,
                NEVER_ENDS,
                id=f"such a budget stops a drain, though the pool has none: {spec or 'one replica'}",
            )
            for replicas, spec in ((4, {"evictionBudget": "Disabled"}), (4, {"maxUnavailable": "100%"}), (1, {}))
        ),
        pytest.param(
            seen(*(running(n, "LiveMigrate") for n in range(1, 5)), budgets=(budget("mine", "", None, app="shop"),)),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="KubeVirt's webhook denies the eviction of these VMs before any budget is asked",
        ),
        pytest.param(
            seen(*map(movable, (1, 2, 3)), STARTS, budgets=(budget("mine", "", app="shop"),)),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="a VM that starts can probably be migrated, as the others",
        ),
        pytest.param(
            seen(*map(fixed, (1, 2, 3)), STARTS, budgets=(budget("mine", "", app="shop"),)),
            PoolReason.FOREIGN_EVICTION_BUDGET,
            TWO,
            id="a VM that starts probably cannot be migrated, as the others",
        ),
        pytest.param(seen(*FOUR, budgets=None), PoolReason.EVICTION_BUDGETS_UNREADABLE, UNREADABLE, id="no right"),
        pytest.param(
            seen(*FOUR[:3], vm(4, ready=False, vmi=vmi("web-4", ready=False, start_failure="Unschedulable"))),
            PoolReason.EVICTIONS_BLOCKED,
            f"{MUST_WAIT}web-4 does not start: Unschedulable",
            id="no node has room for a VM, and a drain waits",
        ),
        pytest.param(
            seen(MOVED, *FOUR[1:3], vm(4, ready=False, vmi=vmi("web-4", ready=False, start_failure="Unschedulable"))),
            PoolReason.EVICTIONS_BLOCKED,
            f"{MUST_WAIT}web-4 does not start: Unschedulable",
            id="no node has room for a VM, while another migrates when it is evicted",
        ),
        pytest.param(
            seen(*FOUR[:3], running(4, ready=False, paused="PausedByUser")),
            PoolReason.EVICTIONS_BLOCKED,
            f"{MUST_WAIT}web-4 is paused",
            id="the Pod of a paused VM is not ready",
        ),
        pytest.param(
            seen(*FOUR[:3], running(4, ready=False, unready_since=ago(600))),
            PoolReason.EVICTIONS_BLOCKED,
            f"{MUST_WAIT}web-4 runs and is not ready for 600 s: see the readiness probe",
            id="a readiness probe never succeeds",
        ),
        pytest.param(
            seen(*FOUR[:3], running(4, ready=False, unready_since=ago(30)), progressDeadlineSeconds=30),
            PoolReason.EVICTIONS_BLOCKED,
            f"{MUST_WAIT}web-4 runs and is not ready for 30 s: see the readiness probe",
            id="for as long as the pool's own deadline",
        ),
        pytest.param(
            seen(
                running(1, ready=False, paused="PausedByUser"),
                running(2, ready=False, paused="PausedByUser"),
                running(3, ready=False, unready_since=ago(600)),
                running(4, ready=False, unready_since=ago(700)),
            ),
            PoolReason.EVICTIONS_BLOCKED,
            "a drain must wait, because 3 of 4 VMs must stay available, and only 0 are available: web-1, web-2 are "
            "paused; web-3, web-4 run and are not ready for 600 s: see the readiness probe",
            id="all VMs, for two reasons",
        ),
        pytest.param(
            seen(
                running(1, "LiveMigrate"),
                FOUR[1],
                running(3, ready=False, paused="PausedByUser"),
                running(4, ready=False, paused="PausedByUser"),
                maxUnavailable=2,
            ),
            PoolReason.EVICTIONS_BLOCKED,
            "a drain must wait, because 2 of 4 VMs must stay available, and only 2 are available: web-3, web-4 are "
            "paused",
            id="as many as must stay are available",
        ),
        pytest.param(
            seen(*FOUR[:3], running(4, ready=False, unready_since=ago(599))),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="a VM that starts is not ready either",
        ),
        pytest.param(
            seen(*FOUR[:3], running(4, ready=False, paused="PausedByUser"), maxUnavailable=2),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="another VM may be evicted beside a paused one",
        ),
        pytest.param(
            replace(seen(*FOUR), cluster=None),
            PoolReason.EVICTION_STRATEGY_UNKNOWN,
            f"{NO_KUBEVIRT}: a drain may stop all VMs of a node at once",
            id="the strategy of the cluster is unknown",
        ),
        pytest.param(
            replace(seen(*FOUR, budgets=(budget(least=2),)), cluster=None),
            PoolReason.EVICTION_STRATEGY_UNKNOWN,
            f"{NO_KUBEVIRT}: its PodDisruptionBudget web stays as it is",
            id="it is unknown since the budget exists",
        ),
        pytest.param(
            replace(seen(*(running(n, "LiveMigrate") for n in range(1, 5))), cluster=None),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="the VMs have a strategy",
        ),
        pytest.param(
            refused(seen(*FOUR)),
            PoolReason.EVICTION_BUDGET_REFUSED,
            "cannot create PodDisruptionBudget web, so that a drain may stop all VMs of a node at once: denied",
            id="a policy refuses it",
        ),
        pytest.param(
            refused(seen(*FOUR, budgets=(budget(least=2),)), wait=9),
            PoolReason.EVICTION_BUDGET_REFUSED,
            "cannot change PodDisruptionBudget web, which stays as it is: denied",
            id="a policy refuses its change",
        ),
        pytest.param(
            refused(seen(*FOUR, budgets=(budget(),), evictionBudget="Disabled")),
            PoolReason.EVICTION_BUDGET_REFUSED,
            "cannot delete PodDisruptionBudget web, although spec.evictionBudget is Disabled: denied",
            id="a policy refuses its deletion",
        ),
        pytest.param(
            refused(seen(*FOUR, budgets=(budget(),))),
            PoolReason.NO_EVICTION_BUDGET_FAILURE,
            "",
            id="somebody has written what was refused",
        ),
    ],
)
def test_the_condition_names_what_is_missing(observed: PoolSnapshot, reason: PoolReason, message: str) -> None:
    found = {each.type: each for each in pool_status(observed, plan(observed, NOW), NOW).conditions}
    if reason is PoolReason.NO_EVICTION_BUDGET_FAILURE:
        assert "EvictionBudgetFailure" not in found
        return
    shown = found["EvictionBudgetFailure"]
    assert (shown.status, shown.reason, shown.message) == ("True", reason, message)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(seen(*FOUR), "3 of 4 VMs must stay available", id="it has one"),
        pytest.param(seen(*FOUR[:2], replicas=2), "1 of 2 VMs must stay available", id="a small one"),
        pytest.param(seen(*FOUR, deleting=True), "the pool is being deleted", id="the pool is deleted"),
        pytest.param(seen(*FOUR, evictionBudget="Disabled"), "spec.evictionBudget is Disabled", id="disabled"),
        pytest.param(
            seen(FOUR[0], replicas=1),
            "1 VM should run, and maxUnavailable allows the stop of all",
            id="one replica",
        ),
        pytest.param(
            seen(*FOUR, maxUnavailable=4),
            "4 VMs should run, and maxUnavailable allows the stop of all",
            id="all may be unavailable",
        ),
        pytest.param(
            seen(*(running(n, "LiveMigrate") for n in range(1, 5))), "an eviction moves its VMs", id="all move"
        ),
        pytest.param(
            seen(template=template(template={"spec": {"evictionStrategy": "LiveMigrate"}})),
            "an eviction moves its VMs",
            id="all VMs that are about to be created move",
        ),
        pytest.param(
            seen(*FOUR[:1], template=template(template={"spec": {"evictionStrategy": "LiveMigrate"}})),
            "3 of 4 VMs must stay available",
            id="a VM of a former template is stopped",
        ),
        pytest.param(
            seen(
                *(running(n, IF_POSSIBLE, ready=False) for n in range(1, 5)),
                template=template(template={"spec": {"evictionStrategy": IF_POSSIBLE}}),
            ),
            "an eviction moves its VMs",
            id="all VMs start, and KubeVirt does not say yet whether it can migrate them",
        ),
        pytest.param(
            seen(*(running(n, "LiveMigrate") for n in (1, 2, 3)), FOUR[3]),
            "an eviction moves 3 VMs, which is enough",
            id="enough VMs move",
        ),
        pytest.param(
            seen(MOVED, FOUR[1], replicas=2),
            "an eviction moves 1 VM, which is enough",
            id="the one that moves is enough",
        ),
    ],
)
def test_a_pool_says_why_it_has_a_budget_or_none(observed: PoolSnapshot, reason: str) -> None:
    assert desired_budget(observed).reason == reason


def test_a_simulated_pool_gets_its_budget_once() -> None:
    found = simulate(seen(*FOUR, budgets=(budget(app="x"),)), NOW)
    budgets = [a for step in found.steps for a in step.actions if isinstance(a, SET | DELETE)]
    assert ([type(each) for each in budgets], found.complete) == ([DELETE, SET], True)


@pytest.mark.parametrize(
    ("strategy", "migratable", "cluster", "expected"),
    [
        ("", True, ClusterSettings(), "Stop"),
        ("", True, ClusterSettings(eviction_strategy="LiveMigrate"), "Move"),
        ("None", True, ClusterSettings(eviction_strategy="LiveMigrate"), "Stop"),
        ("LiveMigrate", False, None, "Move"),
        ("External", False, None, "Move"),
        ("LiveMigrateIfPossible", True, None, "Move"),
        ("LiveMigrateIfPossible", False, None, "Stop"),
        ("", True, ClusterSettings(eviction_strategy="LiveMigrateIfPossible"), "Move"),
        ("", True, None, "Unknown"),
    ],
)
def test_what_an_eviction_does(strategy: str, migratable: bool, cluster: ClusterSettings | None, expected: str) -> None:
    assert treatment(strategy, migratable, cluster) == expected


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": {"kubevirt.io": "virt-launcher"}}, True),
        ({"matchLabels": {"kubevirt.io/created-by": "run-web-1"}}, True),
        ({"matchLabels": {"kubevirt.io/created-by": "another"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["shop"]}]}, True),
        ({"matchExpressions": [{"key": meta.POOL, "operator": "DoesNotExist"}]}, False),
    ],
)
def test_which_budgets_select_the_pods_of_a_pool(selected: Any, expected: bool) -> None:
    metadata = {"namespace": "default", "name": "mine", "uid": "u"}
    found = parse_budget({"metadata": metadata, "spec": {"maxUnavailable": "50%", "selector": selected}})
    guests = [each.vmi for each in FOUR if each.vmi is not None]
    assert (foreign_budget(a_pool(), [found], guests) is not None) is expected


def test_a_budget_of_an_earlier_pool_is_known_by_its_label() -> None:
    ours = build_budget("default", "web", {meta.POOL: "web"}, 3, {"uid": "u-web", "controller": True}, OURS)
    ours["metadata"]["uid"] = "u"
    assert not parse_budget(ours).abandoned
    del ours["metadata"]["ownerReferences"]
    assert parse_budget(ours).abandoned
    ours["metadata"]["labels"][meta.MANAGED_BY] = "Helm"
    assert not parse_budget(ours).abandoned


def test_two_revisions_with_two_strategies_have_one_budget() -> None:
    observed = seen(MOVED, *FOUR[1:])
    assert desired_budget(replace(observed, revisions=(OLD, RUNS))).min_available == 2


def test_the_pool_is_asked_again_when_a_vm_has_not_become_ready() -> None:
    slow = running(4, ready=False, unready_since=ago(100))
    assert plan(seen(*FOUR[:3], slow), NOW).again_seconds == 500
    assert plan(seen(*FOUR), NOW).again_seconds is None


@pytest.mark.parametrize(
    ("phase", "ready", "since"),
    [
        pytest.param("Running", "False", "2026-03-01T12:05:00Z", id="a probe fails"),
        pytest.param("Running", "True", "", id="ready"),
        pytest.param("Scheduling", "False", "", id="it does not run yet"),
    ],
)
def test_since_when_a_vmi_is_not_ready(phase: str, ready: str, since: str) -> None:
    times = [{"phase": "Running", "phaseTransitionTimestamp": "2026-03-01T12:05:00Z"}]
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-03-01T12:00:00Z"}
    status = {"phase": phase, "phaseTransitionTimestamps": times, "conditions": [condition]}
    assert parse_vmi({"metadata": {"name": "web-1"}, "status": status}).unready_since == since
