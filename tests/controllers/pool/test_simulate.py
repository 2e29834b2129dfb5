"""What a simulated pool does, and what the endpoint answers."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from controllers.pool.actions import Action
from controllers.pool.actions.base import after
from controllers.pool.hypothetical_snapshot import hypothetical_snapshot
from controllers.pool.simulate import answer, rows, simulate
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.stores import Stores
from controllers.pool.writes.table import WRITES
from controllers.sets.simulation import PlanEndpoint
from controllers.shared.evictions import ALL_VMIS
from controllers.shared.planner import PlanTooExpensive
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import POOL
from poolhouse.runtime.errors import ApiError, Unauthorized, Unreachable
from poolhouse.runtime.resource import VMS
from tests.controllers.pool.builders import NOW, a_pool, document, retained, snapshot, vm, vmi
from tests.controllers.pool.stores import stored
from tests.controllers.reviews import Reviews
from tests.cost import instructions
from tests.planning import InlinePlanner
from webhook.models import PlanResponse

Json = dict[str, Any]

OLDEST = {"proactive": {"selectionPolicy": {"basePolicy": "Oldest"}}}


def foreseen(observed: PoolSnapshot) -> list[tuple[Any, ...]]:
    return [(row["step"], row["action"], row["vm"]) for row in rows(simulate(observed, NOW))]


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(snapshot(1, vm(1)), [], id="at rest nothing will be done"),
        pytest.param(
            snapshot(3, vm(2), burst=1),
            [(1, "Create", "web-1"), (2, "Create", "web-3")],
            id="burst after burst",
        ),
        pytest.param(
            snapshot(a_pool(0, scaleInStrategy=OLDEST), vm(1), vm(2), burst=1),
            [(1, "Delete", "web-1"), (2, "Delete", "web-2")],
            id="in the order of the policy",
        ),
        pytest.param(
            snapshot(a_pool(2, maxUnavailable=1), vm(1, revision="r0"), vm(2)),
            [(1, "Update", "web-1"), (2, "Restart", "web-1")],
            id="a VM is updated, then restarted",
        ),
        pytest.param(
            snapshot(2, revision_saved=False, burst=9), [(1, "Create", "web-1"), (1, "Create", "web-2")], id="VMs only"
        ),
    ],
)
def test_simulate(observed: PoolSnapshot, expected: list[tuple[Any, ...]]) -> None:
    assert foreseen(observed) == expected


def test_an_incomplete_simulation() -> None:
    foresight = simulate(snapshot(9, burst=1), NOW, max_steps=3)
    assert (len(foresight.steps), foresight.complete) == (3, False)


def test_a_simulation_reports_blocked_scale_in() -> None:
    foresight = simulate(snapshot(0, vm(1, scale_in="Protect")), NOW)
    assert foresight.complete
    assert "web-1 is protected" in foresight.blocked


def test_a_paused_pool_waits_only_for_its_pause() -> None:
    foresight = simulate(snapshot(a_pool(2, paused=True), vm(1, revision="r0"), vm(2, revision="r0")), NOW)
    assert (foresight.steps, foresight.waits, foresight.blocked) == ((), (), "spec.paused is true")


def action_of(kind: Any, ordinal: int) -> Action:
    name = f"web-{ordinal}"
    given = {"name": name, "uid": f"u-{name}", "vmi_uid": f"run-{name}", "ordinal": ordinal, "vmis": ALL_VMIS}
    given |= {"disk": f"root-{ordinal}", "snapshot": name, "restore": name}
    made: Action = kind(**{each.name: given.get(each.name, "") for each in fields(kind)})
    return made


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: str(kind.__name__))
def test_every_action_leads_somewhere(kind: type) -> None:
    assert isinstance(after(snapshot(1, vm(1)), [action_of(kind, 1)]), PoolSnapshot)


@pytest.mark.parametrize("kind", [each for each in WRITES if each.concerns_vm], ids=lambda kind: str(kind.__name__))
def test_an_action_costs_the_same_in_a_pool_of_any_size(kind: type) -> None:
    def cost(count: int) -> int:
        observed = snapshot(count, *map(vm, range(count)), retained_disks=tuple(map(retained, range(count))))
        actions = [action_of(kind, ordinal) for ordinal in range(count)]
        after(observed, actions)  # fills caches
        return instructions(lambda: after(observed, actions))

    assert cost(40) < 4.4 * cost(10)


# The endpoint


async def asked(of: Stores, document: Json, allowed: bool | ApiError = True) -> tuple[int, Json]:
    endpoint = PlanEndpoint(Reviews(VMS.plural, allowed, NOW), VMS, POOL, InlinePlanner(), answer)
    endpoint.observe = lambda given: hypothetical_snapshot(of, given, 250)
    return await endpoint(document, "token")


async def test_a_new_pool_makes_its_vms_and_skips_names_that_are_taken() -> None:
    status, answer = await asked(stored(vm(1, owner_uid="", owner_kind="", owner_name="")), document(2))
    assert status == 200
    assert [(row["action"], row["vm"]) for row in answer["plan"]] == [("Create", "web-2"), ("Create", "web-3")]
    assert set(answer["plan"][0]) == {"action", "vm", "reason"}
    assert PlanResponse.model_validate(answer).complete, "the webhook reads and documents the answer in this form"


def test_vms_without_an_owner_are_not_those_of_a_new_pool() -> None:
    of, given = stored(vm(1, owner_uid="", owner_kind="", owner_name="")), document(1)
    of.vmis.put(("default", "web-1"), replace(vmi("web-1"), labels={meta.POOL: "web"}))
    del given["metadata"]["uid"]
    found = hypothetical_snapshot(of, given, 250)
    assert isinstance(found, PoolSnapshot)
    assert found.foreign_vmis == ("run-web-1",)
    assert set(found.foreign_disks) == {"root-1"}


async def test_an_existing_pool_keeps_its_vms() -> None:
    of = stored(vm(1), vm(2), a_pool(2))
    _, answer = await asked(of, document(3))
    assert ("Create", "web-3") in [(row["action"], row["vm"]) for row in answer["plan"]]
    assert not [row for row in answer["plan"] if row["action"] == "Delete"]


async def test_a_new_pool_with_a_disk_conflict_is_refused() -> None:
    other = replace(a_pool(1), name="other", uid="u-other", created_at="2026-02-01T00:00:00Z")
    _, answer = await asked(stored(other), document(2))
    assert answer["plan"] == []
    assert "root is also pool other's" in answer["refused"]


async def test_the_endpoint_changes_no_store() -> None:
    of = stored(vm(1), a_pool(1))
    await asked(of, document(0))
    known = of.pools.get(("default", "web"))
    assert known is not None
    assert known == a_pool(1)


async def test_the_plan_of_a_huge_pool_ends_early() -> None:
    _, answer = await asked(stored(), document(2**31 - 1))
    assert (len(answer["plan"]), answer["complete"]) == (1000, False)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        pytest.param({}, "metadata", id="nothing"),
        pytest.param({**document(2), "metadata": {"generateName": "a-"}}, "metadata.name", id="no name"),
        pytest.param({"metadata": {"name": 7}}, "metadata.name", id="a name that is none"),
        pytest.param(document("many"), "spec.replicas", id="a spec that is none"),
        pytest.param({**document(2), "apiVersion": 7}, "apiVersion", id="another kind"),
    ],
)
async def test_an_invalid_document_is_refused(body: Json, path: str) -> None:
    status, answer = await asked(stored(), body)
    assert status == 422
    assert path in [problem["path"] for problem in answer["problems"]]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(False, 403, id="one who may not see the VMs"),
        pytest.param(Unauthorized("who?", status=401), 401, id="a token that nobody knows"),
        pytest.param(Unreachable("away"), 503, id="an API server that does not say"),
    ],
)
async def test_only_a_caller_that_may_list_vms_gets_their_names(allowed: bool | ApiError, expected: int) -> None:
    status, answer = await asked(stored(a_vm := vm(1), a_pool(1)), document(0), allowed)
    assert status == expected
    assert a_vm.name not in str(answer)


async def test_only_a_caller_that_may_list_vms_has_a_document_checked() -> None:
    status, _ = await asked(stored(), document("many"), allowed=False)
    assert status == 403


class TooExpensive(InlinePlanner):
    async def run(self, *arguments: Any, **named: Any) -> Any:
        raise PlanTooExpensive(5.0)


async def test_a_document_is_checked_within_the_budget_of_a_plan() -> None:
    endpoint = PlanEndpoint(Reviews(VMS.plural, True, NOW), VMS, POOL, TooExpensive(), answer)
    assert (await endpoint(document(2), "token"))[0] == 503


async def test_excessive_documents_are_refused_before_all_other_checks() -> None:
    disks = [{"metadata": {"name": f"d{number}"}, "spec": {}} for number in range(60_000)]
    large = document(2)
    large["spec"]["template"]["spec"]["dataVolumeTemplates"] = disks
    status, found = await asked(stored(), large)
    assert status == 422
    assert len(found["problems"]) == 1
