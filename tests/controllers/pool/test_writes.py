"""The table of writes, compared with the actions."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass

import pytest

from controllers.pool import actions
from controllers.pool.actions import Action
from controllers.pool.pools import Pool
from controllers.pool.writes.table import NEEDS, WRITES
from controllers.sets.write_batches import WriteBatches
from controllers.shared.names import has_revision
from poolhouse.runtime.batch_writer import ExpectedEvents
from poolhouse.runtime.expectations import Expectations
from tests.controllers.pool.builders import a_pool

ALL = [each for each in vars(actions).values() if inspect.isclass(each) and issubclass(each, Action)]


def test_each_action_has_a_write() -> None:
    assert set(WRITES) == {each for each in ALL if each is not Action}


@pytest.mark.parametrize("kind", list(WRITES), ids=lambda kind: str(kind.__name__))
def test_an_action_knows_what_belongs_to_it(kind: type[Action]) -> None:
    assert is_dataclass(kind)
    assert kind.past
    assert kind.succeeded == f"Successful{kind.__name__}"
    assert kind.failed == f"Failed{kind.__name__}"
    recorded_or_hidden = (kind.recorded, kind.concerns_vm)
    assert recorded_or_hidden != (True, False), "the decisions log has only what a plan shows"


def test_other_pools_wait_for_actions_that_name_disks_of_a_template() -> None:
    """Snapshots, restarts, deletions, budgets and labels give no VM a disk that another pool could give to its own."""
    assert {each for each in WRITES if each.names_disks} == {actions.Create, actions.Update}


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (actions.RetainDisks, actions.Delete, "the replaced disks would be deleted with the VM"),
        (actions.ReleaseDisks, actions.Create, "a VM of the name waits for its disks"),
        (actions.SaveRevision, actions.Create, "the VM names the revision"),
        (actions.SaveRevision, actions.Update, "the VM names the revision"),
        (actions.EndHold, actions.Hold, "the annotations of hooks would be removed again"),
        (actions.Update, actions.Restart, "a restart uses the new template"),
        (actions.Create, actions.PruneRevision, "a VM may still get the revision"),
    ],
)
def test_writes_come_in_their_order(first: type[Action], then: type[Action], why: str) -> None:
    order = list(WRITES)
    assert order.index(first) < order.index(then), why


def test_what_needs_a_revision_comes_after_its_write() -> None:
    order = list(WRITES)
    assert all(order.index(actions.SaveRevision) < order.index(each) for each in NEEDS)


@pytest.mark.parametrize(
    ("action", "events"),
    [
        (actions.Create("web-1", 1, "web-abc", ""), ExpectedEvents(creates=("web-1",))),
        (actions.Delete("web-1", "u-web-1", "7", ""), ExpectedEvents(deletes=("u-web-1",))),
        (actions.Heal("web-1", "u-web-1", ""), ExpectedEvents(deletes=("u-web-1",))),
        (actions.Restart("web-1", "run-web-1", False, ""), ExpectedEvents(deletes=("run-web-1",))),
        (actions.Update("web-1", "u-web-1", 1, "r0", "r1", ""), ExpectedEvents(creates=(has_revision("web-1", "r1"),))),
        (actions.PruneSnapshot("web-1-s", "u-s", ""), ExpectedEvents(deletes=("u-s",))),
        (actions.SaveRevision("web-abc", 1, ""), ExpectedEvents()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_plan_is_made_before_the_stores_show_an_action(action: Action, events: ExpectedEvents) -> None:
    """Without expectations, a controller whose stores are late would create a second VM."""
    expectations: Expectations[str] = Expectations(30.0)
    batches: WriteBatches[Pool] = WriteBatches(None, expectations, lambda: 0.0)
    batches.expect(a_pool(), [action])
    assert expectations.satisfied("u-web", 0.0) == (events == ExpectedEvents())
    assert action.expected_events() == events
