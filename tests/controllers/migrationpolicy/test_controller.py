"""VMIs whose label the API server refuses: the policy reports them until their label is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.migrationpolicy.controller import PolicyController
from controllers.migrationpolicy.memory import PAUSES, RESET_SECONDS, PolicyMemory, UnlabelledVMIs
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.migrationpolicy.observe import Namespace, Policy, Stores, VMILabels
from controllers.migrationpolicy.status import status
from controllers.shared.status_writer import StatusUpdate
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid, Unreachable
from poolhouse.runtime.metrics import Metrics
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store
from tests.controllers.migrationpolicy.builders import enforcing, given, policy

A, B = ("shop", "a"), ("shop", "b")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def vmi(**changed: Any) -> VMILabels:
    return VMILabels(
        **(
            {"namespace": "shop", "name": "a", "uid": "1", "labels": {"app": "web"}, "winner": None, "active": False}
            | changed
        )
    )


class FakeWriter:
    """Answers as a test says, and keeps the reasons of the condition Enforced."""

    def __init__(self) -> None:
        self.answer: ApiError | None = None
        self.meanwhile: Any = lambda: None
        self.said: list[str] = []
        self.events: list[tuple[str, str]] = []

    async def label(self, vmi: Any, action: Any) -> None:
        self.meanwhile()
        if self.answer is not None:
            raise self.answer

    async def apply(self, policy: Any, action: Any) -> None:
        pass

    async def update(self, policy: Any, status: Any, last: Any) -> StatusUpdate:
        self.said.append(status.conditions[1].reason)
        return StatusUpdate(written=True)

    def emit(self, policy: Any, type: str, reason: str, note: str) -> None:
        self.events.append((type, reason))


class Cluster:
    """A leading controller, one policy, and one VMI that it wins."""

    def __init__(self, gold: Policy | None = None) -> None:
        self.vmis: Store[VMILabels] = Store()
        policies, namespaces = Store(), Store()
        policies.put(("", "gold"), gold or policy())
        policies.put(("", "bronze"), policy("bronze", {"app": ""}, uid="another"))
        namespaces.put(("", "shop"), Namespace("shop", {}))
        self.vmis.put(A, vmi(active=True))
        upstream = SimpleNamespace(known=True, served=True, get=lambda name: enforcing(), all=())
        kubevirts = SimpleNamespace(known=True, all=())
        self.writer, self.time = FakeWriter(), 0.0
        self.controller = PolicyController(
            Stores(policies, namespaces, self.vmis, upstream, kubevirts),
            self.writer,
            self.writer,
            PolicyMetrics(CollectorRegistry()),
            clock=lambda: self.time,
            now=lambda: NOW + timedelta(seconds=self.time),
            metrics=Metrics(),
        )
        self.controller.start()

    def sees(self, key: Key, view: VMILabels | None) -> None:
        old = self.vmis.drop(key) if view is None else self.vmis.put(key, view)
        self.controller.vmi_changed(old, view)

    async def reason(self) -> str:
        self.time += 60
        await self.controller.reconcile("gold")
        return self.writer.said[-1]


@pytest.mark.sentence("3.23")
async def test_a_policy_that_expires_leaves_its_vmis_to_the_next_at_that_time() -> None:
    cluster = Cluster(policy(expiresAt="2026-01-01T01:00:00Z"))
    controller = cluster.controller
    assert await controller.reconcile("gold") == 3600
    cluster.time = 3599.5
    assert await controller.reconcile("gold") == 0.5
    assert controller.winners.winner(A) == "gold"
    cluster.time = 3600
    assert await controller.reconcile("gold") is None
    assert controller.winners.winner(A) == "bronze"
    assert (controller.winners.wins("gold"), controller.winners.losses("gold")) == (0, 0)
    assert cluster.writer.events == [("Normal", "Expired")]
    controller.start()
    assert controller.winners.winner(A) == "bronze", "also after a restart"


def test_an_expired_policy_has_no_metric_that_raises_an_alert() -> None:
    registry = CollectorRegistry()
    metrics, name = PolicyMetrics(registry), "kubevirt_poolhouse_migration_policy_enforced"
    known, now = given(policy(expiresAt="2026-01-01T00:00:00Z"), enforcing=enforcing()), NOW
    metrics.update("gold", status(known, now))
    assert registry.get_sample_value(name, {"policy": "gold"}) == 1
    for _ in range(2):
        metrics.update("gold", status(replace(known, expired=True), now))
        assert registry.get_sample_value(name, {"policy": "gold"}) is None


@pytest.mark.parametrize("refused", [Forbidden("it is forbidden"), Invalid("a webhook denied it")])
async def test_a_refused_label_is_reported_until_it_is_written(refused: ApiError) -> None:
    cluster = Cluster()
    cluster.writer.answer = refused
    with pytest.raises(type(refused)):  # so the controller retries
        await cluster.controller.reconcile_label(A)
    assert await cluster.reason() == "FailedLabel"
    cluster.writer.answer = None
    await cluster.controller.reconcile_label(A)
    assert await cluster.reason() == "InSync"


@pytest.mark.parametrize(
    "becomes",
    [
        pytest.param(None, id="deleted"),
        pytest.param(vmi(active=False), id="finished"),
        pytest.param(vmi(active=True, uid="2"), id="replaced by a VMI of the same name"),
        pytest.param(vmi(active=True, labels={}), id="no policy matches it"),
        pytest.param(vmi(active=True, winner="gold"), id="labelled by another client"),
    ],
)
async def test_a_vmi_that_needs_no_label_is_not_reported(becomes: VMILabels | None) -> None:
    cluster = Cluster()
    cluster.writer.answer = Forbidden("it is forbidden")
    with pytest.raises(Forbidden):
        await cluster.controller.reconcile_label(A)
    assert await cluster.reason() == "FailedLabel"
    cluster.sees(A, becomes)
    cluster.writer.answer = None
    await cluster.controller.reconcile_label(A)
    assert await cluster.reason() == "InSync"


@pytest.mark.parametrize("becomes", [None, vmi(active=False), vmi(active=True, uid="2")])
async def test_a_refusal_for_a_replaced_vmi_is_not_reported(becomes: VMILabels | None) -> None:
    cluster = Cluster()
    cluster.writer.answer = Invalid("metadata.uid: field is immutable")
    cluster.writer.meanwhile = lambda: cluster.sees(A, becomes)
    assert await cluster.controller.reconcile_label(A) is None
    assert await cluster.reason() == "InSync"


async def test_an_unreachable_server_is_not_a_refusal() -> None:
    cluster = Cluster()
    cluster.writer.answer = Unreachable("no answer")
    with pytest.raises(Unreachable):
        await cluster.controller.reconcile_label(A)
    assert await cluster.reason() == "InSync"


A, B = ("shop", "a"), ("shop", "b")


def test_the_first_repair_has_no_pause() -> None:
    assert PolicyMemory("gold").repair_pause(1, 0) == 0


def test_the_pauses_between_repairs_grow() -> None:
    memory, now, pauses = PolicyMemory("gold"), 0.0, []
    for _ in range(12):
        assert memory.repair_pause(1, now) == 0
        pauses.append(memory.repair_pause(1, now))
        now += pauses[-1]
    assert pauses[0] <= 2
    assert all(later > sooner for sooner, later in pairwise(pauses[:7]))
    assert max(pauses) <= PAUSES.cap_seconds


def test_a_change_by_the_author_resets_the_pauses() -> None:
    memory = PolicyMemory("gold")
    assert memory.repair_pause(1, 0) == 0
    assert memory.repair_pause(2, 0) == 0


def test_the_pauses_reset_after_a_while_without_a_repair() -> None:
    memory = PolicyMemory("gold")
    for _ in range(5):
        memory.repair_pause(1, 0)
    now = RESET_SECONDS + 1
    assert memory.repair_pause(1, now) == 0
    assert memory.repair_pause(1, now) <= PAUSES.base_seconds


def test_a_refused_label_is_reported_once() -> None:
    known = UnlabelledVMIs()
    assert known.refused(B, "gold", "b is forbidden") == ("gold",)
    assert known.refused(B, "gold", "b is forbidden") == ()
    assert known.of("gold") == (1, "b is forbidden")
    assert known.refused(A, "gold", "a is forbidden") == ("gold",)
    assert known.of("gold") == (2, "a is forbidden")
    assert set(known.refused(A, "plain", "a is forbidden")) == {"gold", "plain"}
    assert (known.of("gold"), known.of("plain")) == ((1, "b is forbidden"), (1, "a is forbidden"))
    assert known.refused(A, None, "a is forbidden") == ("plain",)
    assert (known.resolved(A), known.resolved(B)) == ((), ("gold",))
    assert (known.of("gold"), known.of("plain")) == ((0, ""), (0, ""))
