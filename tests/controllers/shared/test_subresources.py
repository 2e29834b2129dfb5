"""Which refusals of KubeVirt become failures, and when."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.shared.subresources import RESOURCES, RepeatedlyRefused, Subresources, Verb
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, NotFound, Throttled, Unreachable
from poolhouse.stack.engine.vm.subresources import VERBS

CONFLICT = Conflict("VMI is already paused", status=409)


class FakeApi:
    def __init__(self) -> None:
        self.answer: ApiError | None = None
        self.paths: list[str] = []

    async def put_subresource(self, resource: Any, namespace: str, name: str, verb: str) -> None:
        self.paths.append(resource.path(namespace, name, verb))
        if self.answer is not None:
            raise self.answer


class World:
    def __init__(self) -> None:
        self.api, self.seconds = FakeApi(), 0.0
        self.subresources = Subresources(self.api, lambda: self.seconds)

    async def put(self, answer: ApiError | None, verb: Verb = "pause", uid: str = "a") -> type[ApiError] | None:
        """The class of the raised error."""
        self.api.answer = answer
        try:
            await self.subresources.put(verb, "ns", "vm", uid)
        except ApiError as error:
            return type(error)
        return None

    async def refuse(self, answer: ApiError, *seconds: float) -> list[type[ApiError] | None]:
        raised = []
        for self.seconds in seconds:
            raised.append(await self.put(answer))
        return raised


@pytest.mark.parametrize("verb", RESOURCES)
async def test_each_verb_is_one_that_kubevirt_serves(verb: Verb) -> None:
    world = World()
    await world.put(None, verb)
    assert verb in VERBS[RESOURCES[verb].plural]
    assert world.api.paths == [f"/apis/subresources.kubevirt.io/v1/namespaces/ns/{RESOURCES[verb].plural}/vm/{verb}"]


@pytest.mark.parametrize(
    ("answer", "seconds", "raised", "reported"),
    [
        pytest.param(CONFLICT, (0, 1, 2), [Conflict] * 3, False, id="a conflict may pass"),
        pytest.param(CONFLICT, (0, 21), [Conflict] * 2, False, id="two conflicts are not enough"),
        pytest.param(CONFLICT, (0, 9, 21), [Conflict, Conflict, RepeatedlyRefused], True, id="a conflict that stays"),
        pytest.param(NotFound("gone"), (0, 9, 21), [NotFound, NotFound, RepeatedlyRefused], True, id="no such API"),
        pytest.param(Forbidden("no"), (0, 9, 21), [Forbidden] * 3, True, id="another refusal keeps its class"),
        pytest.param(Throttled("busy"), (0, 9, 21), [Throttled] * 3, False, id="a busy server refuses nothing"),
        pytest.param(Unreachable("cut"), (0, 9, 21), [Unreachable] * 3, False, id="no answer is no refusal"),
    ],
)
async def test_refusals(
    answer: ApiError, seconds: tuple[float, ...], raised: list[type[ApiError]], reported: bool
) -> None:
    world = World()
    assert await world.refuse(answer, *seconds) == raised
    assert bool(world.subresources.refusal(["a"])) == reported
    assert not world.subresources.refusal(["b"])


async def test_an_accepted_request_ends_the_refusals() -> None:
    world = World()
    await world.refuse(CONFLICT, 0, 9, 21)
    assert "already paused" in world.subresources.refusal(["b", "a"])
    assert await world.put(None) is None
    assert not world.subresources.refusal(["a"])


async def test_another_request_begins_a_new_count() -> None:
    world = World()
    await world.refuse(CONFLICT, 0, 9)
    world.seconds = 21
    assert await world.put(CONFLICT, "stop") is Conflict
    assert not world.subresources.refusal(["a"])


async def test_clients_can_share_the_count() -> None:
    world = World()
    other = world.subresources.sharing_refusals(FakeApi())
    await world.refuse(CONFLICT, 0, 9, 21)
    assert other.refusal(["a"])
    other.forget("a")
    assert not world.subresources.refusal(["a"])
