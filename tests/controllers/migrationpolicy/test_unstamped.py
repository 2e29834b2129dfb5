"""VMs whose stamps are refused: their policy says so until it is over, and it is asked again."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.migrationpolicy.controller import PolicyController
from controllers.migrationpolicy.metrics import PolicyMetrics
from controllers.migrationpolicy.observe import Stores
from controllers.migrationpolicy.state import Instance, Namespace
from controllers.migrationpolicy.unstamped import Unstamped
from runtime.errors import ApiError, Forbidden, Invalid, Unreachable
from runtime.metrics import Metrics
from runtime.resource import Key
from runtime.store import Store
from tests.controllers.migrationpolicy.builders import enforcer, policy

A, B = ("shop", "a"), ("shop", "b")


def test_what_is_refused_is_told_of_once() -> None:
    known = Unstamped()
    assert known.refused(B, "gold", "b is forbidden") == ("gold",)
    assert known.refused(B, "gold", "b is forbidden") == ()
    assert known.of("gold") == (1, "b is forbidden")
    assert known.refused(A, "gold", "a is forbidden") == ("gold",)
    assert known.of("gold") == (2, "a is forbidden")
    assert set(known.refused(A, "plain", "a is forbidden")) == {"gold", "plain"}
    assert (known.of("gold"), known.of("plain")) == ((1, "b is forbidden"), (1, "a is forbidden"))
    assert known.refused(A, None, "a is forbidden") == ("plain",)
    assert (known.over(A), known.over(B)) == ((), ("gold",))
    assert (known.of("gold"), known.of("plain")) == ((0, ""), (0, ""))


def vmi(**changed: Any) -> Instance:
    return Instance(
        **({"namespace": "shop", "name": "a", "uid": "1", "labels": {"app": "web"}, "stamp": None} | changed)
    )


class Asked:
    """Answers as it is told to, and keeps what is said of policies."""

    def __init__(self) -> None:
        self.answer: ApiError | None = None
        self.meanwhile: Any = lambda: None
        self.said: list[str] = []

    async def stamp(self, instance: Any, action: Any) -> None:
        self.meanwhile()
        if self.answer is not None:
            raise self.answer

    async def write_status(self, policy: Any, status: Any) -> None:
        self.said.append(status["conditions"][1]["reason"])

    def say(self, *about: Any) -> None:
        pass


class Place:
    """A controller that leads, one policy, and one VM that obeys it."""

    def __init__(self) -> None:
        self.instances: Store[Instance] = Store()
        policies, namespaces = Store(), Store()  # type: ignore[var-annotated]
        policies.put(("", "gold"), policy())
        namespaces.put(("", "shop"), Namespace("shop", {}))
        self.instances.put(A, vmi(live=True))
        upstream = SimpleNamespace(known=True, served=True, get=lambda name: enforcer(), all=())
        kubevirts = SimpleNamespace(known=True, all=())
        self.asked, self.time = Asked(), 0.0
        self.controller = PolicyController(
            Stores(policies, namespaces, self.instances, upstream, kubevirts),  # type: ignore[arg-type]
            self.asked,  # type: ignore[arg-type]
            PolicyMetrics(CollectorRegistry()),
            clock=lambda: self.time,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            metrics=Metrics(),
        )
        self.controller._open()

    def sees(self, key: Key, view: Instance | None) -> None:
        old = self.instances.drop(key) if view is None else self.instances.put(key, view)
        self.controller.instance_changed(old, view)

    async def says(self) -> str:
        self.time += 60
        await self.controller.reconcile("gold")
        return self.asked.said[-1]


@pytest.mark.parametrize("refused", [Forbidden("it is forbidden"), Invalid("a webhook denied it")])
async def test_a_policy_whose_stamp_is_refused_says_so_until_it_is_over(refused: ApiError) -> None:
    place = Place()
    place.asked.answer = refused
    with pytest.raises(type(refused)):  # and so it is tried again
        await place.controller.reconcile_stamp(A)
    assert await place.says() == "StampRefused"
    place.asked.answer = None
    await place.controller.reconcile_stamp(A)
    assert await place.says() == "InStep"


@pytest.mark.parametrize(
    "becomes",
    [
        pytest.param(None, id="it is gone"),
        pytest.param(vmi(live=False), id="it has ended"),
        pytest.param(vmi(live=True, uid="2"), id="another one has its name"),
        pytest.param(vmi(live=True, labels={}), id="it obeys no policy"),
        pytest.param(vmi(live=True, stamp="gold"), id="somebody else has labelled it"),
    ],
)
async def test_what_is_no_more_to_be_labelled_is_not_told_of(becomes: Instance | None) -> None:
    place = Place()
    place.asked.answer = Forbidden("it is forbidden")
    with pytest.raises(Forbidden):
        await place.controller.reconcile_stamp(A)
    assert await place.says() == "StampRefused"
    place.sees(A, becomes)
    place.asked.answer = None
    await place.controller.reconcile_stamp(A)
    assert await place.says() == "InStep"


@pytest.mark.parametrize("becomes", [None, vmi(live=False), vmi(live=True, uid="2")])
async def test_a_refusal_that_comes_after_its_vm_is_no_news(becomes: Instance | None) -> None:
    place = Place()
    place.asked.answer = Invalid("metadata.uid: field is immutable")
    place.asked.meanwhile = lambda: place.sees(A, becomes)
    assert await place.controller.reconcile_stamp(A) is None
    assert await place.says() == "InStep"


async def test_a_server_that_is_away_refuses_nothing() -> None:
    place = Place()
    place.asked.answer = Unreachable("nobody is there")
    with pytest.raises(Unreachable):
        await place.controller.reconcile_stamp(A)
    assert await place.says() == "InStep"
