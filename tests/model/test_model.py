"""A short part of `make model`, and faults that the models must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from controllers.claim import steps
from controllers.claim.plan import plan as plan_claim
from controllers.claim.snapshot import ClaimSnapshot
from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.actions.base import after
from controllers.pool.gates import table as gates
from controllers.pool.gates.disruptions import Effect, Gate
from controllers.pool.plan import plan
from controllers.pool.rules.rule import Plan
from controllers.pool.snapshot import PoolSnapshot
from tests.model.claims import ClaimModel
from tests.model.claims import written as written_by_claim
from tests.model.kubevirt import progress, written
from tests.model.models import CLAIMS, MODELS, POOLS
from tests.model.pools import NOW, PoolModel
from tests.model.search import Explored, explore

MOST = 100
"""states of a model: the nearest of all"""
MOST_WITH_FAULT = 1500


@pytest.mark.parametrize("name", MODELS)
def test_each_path_comes_to_rest(name: str) -> None:
    bounds: dict[str, Any] = {"vms": 2, "replicas": (1, 2)} if name.startswith("pool") else {"vms": 1, "replicas": (1,)}
    assert not explore(MODELS[name](faults=1, changes=1, **bounds), MOST).found


def small(name: str, **given: Any) -> PoolModel:
    """A pool of one VM or none. Its steps need another VM."""
    vms = 2 if name == "steps" else 1
    return PoolModel(replace(POOLS[name], vms=vms, replicas=(vms - 1, vms), faults=0, changes=0), **given)


def found_in(model: PoolModel | ClaimModel) -> str:
    explored: Explored = explore(model, MOST_WITH_FAULT, enough=1)
    return "\n".join(map(str, explored.found))


Write = Callable[[Action, PoolSnapshot, PoolSnapshot, datetime], PoolSnapshot | None]


def without_effect(kind: type[Action]) -> Write:
    """The API server accepts the write, and nothing comes of it."""

    def write(action: Action, cluster: PoolSnapshot, seen: PoolSnapshot, now: datetime) -> PoolSnapshot | None:
        return cluster if isinstance(action, kind) else written(action, cluster, seen, now)

    return write


def planned(change: Callable[[Plan, PoolSnapshot], Plan]) -> Callable[[PoolSnapshot, datetime], Plan]:
    return lambda snapshot, now: change(plan(snapshot, now), snapshot)


def dropped(kind: type[Action]) -> Callable[[PoolSnapshot, datetime], Plan]:
    def drop(found: Plan, snapshot: PoolSnapshot) -> Plan:
        return replace(found, actions=tuple(each for each in found.actions if not isinstance(each, kind)))

    return planned(drop)


def flipped(found: Plan, snapshot: PoolSnapshot) -> Plan:
    """Deletes the VM that comes last instead of the one that comes first."""
    last = max(snapshot.active, key=lambda vm: vm.ordinal or 0, default=None)

    def other(action: Action) -> Action:
        to_delete = isinstance(action, actions.Delete) and last is not None
        return replace(action, name=last.name, uid=last.uid) if to_delete and last is not None else action

    return replace(found, actions=tuple(map(other, found.actions)))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        *(
            pytest.param(small(name, plan=dropped(kind)), "nothing acts", id=f"{name}: no {kind.__name__}")
            for name, kind in (
                ("proactive", actions.Create),
                ("proactive", actions.Restart),
                ("proactive", actions.Update),
                ("offline", actions.ReleaseDisks),
                ("recreate", actions.RetainDisks),
                ("surge", actions.Delete),
                ("hooks", actions.Hold),
                ("healing", actions.Heal),
            )
        ),
        *(
            pytest.param(small(name, write=without_effect(kind)), "a cycle", id=f"{name}: {kind.__name__} does nothing")
            for name, kind in (
                ("proactive", actions.Restart),
                ("proactive", actions.Update),
                ("hooks", actions.Hold),
                ("hooks", actions.EndHold),
                ("snapshot", actions.TakeSnapshot),
                ("recreate", actions.RetainDisks),
            )
        ),
        *(
            pytest.param(
                small(name, plan=planned(lambda found, _: replace(found, again_seconds=None))),
                "nothing acts",
                id=f"{name}: no time to be asked again",
            )
            for name in ("window", "hooks", "steps")
        ),
        pytest.param(
            small("opportunistic", plan=planned(lambda found, _: replace(found, waits=()))),
            "told: nothing",
            id="opportunistic: no sentence",
        ),
        pytest.param(small("surge", plan=planned(flipped)), "a cycle", id="surge: the new VM is deleted first"),
    ],
)
def test_a_seeded_fault_is_found(model: PoolModel, expected: str) -> None:
    assert expected in found_in(model)


def test_a_gate_that_never_opens_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Gate("Never", lambda *_: "it is never", lambda cause: cause == "Update", "", least=Effect.CHANGES)
    monkeypatch.setattr(gates, "GATES", (*gates.GATES, never))
    assert "told: web-1: it is never" in found_in(small("proactive"))


def claims(name: str, faults: int = 0, changes: int = 0, **given: Any) -> ClaimModel:
    """One claim, and no VM or one."""
    bounds = replace(CLAIMS[name], vms=1, claims=1, replicas=(0, 1), faults=faults, changes=changes)
    return ClaimModel(bounds, **given)


def waits_instead_of(kind: type[steps.Step]) -> Callable[[ClaimSnapshot, datetime], steps.Step]:
    def step(snapshot: ClaimSnapshot, now: datetime) -> steps.Step:
        found = plan_claim(snapshot, now)
        return steps.Requeue() if isinstance(found, kind) else found

    return step


def never_asked_again(snapshot: ClaimSnapshot, now: datetime) -> steps.Step:
    found = plan_claim(snapshot, now)
    return steps.Requeue() if isinstance(found, steps.Requeue) else found


def without_effect_on_claims(kind: type[steps.Step]) -> Any:
    return lambda world, seen, step: world if isinstance(step, kind) else written_by_claim(world, seen, step)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        *(
            pytest.param(
                claims(name, changes=changes, plan=waits_instead_of(kind)),
                "nothing acts",
                id=f"{name}: no {kind.__name__}",
            )
            for name, changes, kind in (
                ("queue", 0, steps.ReserveVM),
                ("cold-start", 0, steps.CreateVM),
                ("cold-start", 0, steps.HandOverVM),
                ("cold-start", 1, steps.DeleteVM),
                ("paused", 0, steps.ActivateVM),
                ("queue", 0, steps.JoinWaitQueue),
            )
        ),
        *(
            pytest.param(
                claims(name, write=without_effect_on_claims(kind)),
                "a cycle",
                id=f"{name}: {kind.__name__} does nothing",
            )
            for name, kind in (
                ("cold-start", steps.ReserveVM),
                ("cold-start", steps.HandOverVM),
                ("paused", steps.ActivateVM),
                ("stopped", steps.MarkActivated),
            )
        ),
        pytest.param(claims("cold-start", faults=1, plan=never_asked_again), "nothing acts", id="never asked again"),
    ],
)
def test_a_seeded_fault_of_claims_is_found(model: ClaimModel, expected: str) -> None:
    assert expected in found_in(model)


@pytest.mark.parametrize("name", sorted(POOLS.keys() - {"offline"}))
def test_an_action_ends_as_its_effect_says(name: str) -> None:
    """Plan endpoints use `after`; here, the API server and KubeVirt take one step after another. With retained
    disks, a deletion ends with another action."""
    model = small(name)
    for world in model.initial():
        decided = model._decide(world)
        for action in decided.actions:
            cluster = written(action, world.cluster, world.cluster, NOW)
            assert cluster is not None
            assert outline(at_rest(cluster)) == outline(at_rest(after(world.cluster, [action]))), action


def at_rest(cluster: PoolSnapshot) -> PoolSnapshot:
    while steps := list(progress(cluster, NOW)):
        cluster = steps[0][1]
    return cluster


def outline(cluster: PoolSnapshot) -> Any:
    vms = sorted(
        (vm.name, vm.revision, vm.available, vm.vmi.revision if vm.vmi else "", vm.disks) for vm in cluster.vms
    )
    disks = sorted(disk.name for disk in cluster.retained_disks)
    return vms, disks, [each.ready for each in cluster.vm_snapshots], sorted(each.name for each in cluster.revisions)
