"""The controllers ask again whether the author of a reference may get what it names now."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.shared.data_sources import DATA_SOURCES
from controllers.shared.reference_rights import (
    ANSWER_SECONDS,
    Question,
    ReferenceRights,
    questions,
    references_refused,
)
from poolhouse.api.kinds.reference_authors import Author
from poolhouse.runtime.errors import ApiError, Forbidden, Unreachable

ANN, BOB = Author("ann", ("devs",)), Author("bob")
FEDORA, DEBIAN = ("images", "fedora"), ("images", "debian")


class FakeApi:
    def __init__(self) -> None:
        self.seconds, self.asked = 0.0, list[Any]()
        self.answer: bool | ApiError = True

    def monotonic(self) -> float:
        return self.seconds

    async def request(self, method: str, path: str, body: Any) -> Any:
        self.asked.append(body["spec"])
        if isinstance(self.answer, ApiError):
            raise self.answer
        return {"status": {"allowed": self.answer}}


class World:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.rights = ReferenceRights(self.api)

    async def refusals(self, *asked: Question) -> dict[str, str]:
        await self.rights.ask(asked)
        return self.rights.refusals({each.name: each for each in asked}, kept={each.name for each in asked})


def a_review(answer: bool | ApiError) -> tuple[ReferenceRights, FakeApi]:
    """Rights by an API server with this answer."""
    world = World()
    world.api.answer = answer
    return world.rights, world.api


def question(author: Author = ANN, name: str = "fedora") -> Question:
    return Question(author, DATA_SOURCES, "images", name)


@pytest.mark.parametrize(
    ("authors", "changed", "expected"),
    [
        pytest.param({"DataSource images/fedora": ANN}, {"root": FEDORA}, {"root": question()}, id="its author"),
        pytest.param({"DataSource images/fedora": ANN}, {}, {}, id="nothing new"),
        pytest.param({}, {"root": FEDORA}, {}, id="a reference that admission has not seen"),
        pytest.param({"DataSource images/debian": ANN}, {"root": FEDORA}, {}, id="the author of another reference"),
        pytest.param(
            {"DataSource images/fedora": ANN, "DataSource images/debian": BOB},
            {"root": FEDORA, "data": DEBIAN},
            {"root": question(), "data": question(BOB, "debian")},
            id="two authors",
        ),
    ],
)
def test_the_rights_of_known_authors_of_new_references_are_asked_about(
    authors: Any, changed: Any, expected: Any
) -> None:
    assert questions(authors, DATA_SOURCES, changed) == expected


async def test_the_api_server_is_asked_with_the_groups_of_the_author() -> None:
    world = World()
    assert await world.refusals(question()) == {}
    attributes = {"verb": "get", "group": "cdi.kubevirt.io", "version": "v1beta1", "resource": "datasources"}
    attributes |= {"namespace": "images", "name": "fedora"}
    assert world.api.asked == [{"user": "ann", "groups": ["devs"], "resourceAttributes": attributes}]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(False, "ann, who wrote the reference, may no longer get DataSource images/fedora", id="no"),
        pytest.param(
            Unreachable("the API server is away"),
            "cannot determine whether ann may still get DataSource images/fedora: the API server is away",
            id="no answer",
        ),
        pytest.param(
            Forbidden("you may not create subjectaccessreviews", status=403),
            "cannot determine whether ann may still get DataSource images/fedora: 403: you may not create"
            " subjectaccessreviews",
            id="the role lacks a rule",
        ),
    ],
)
async def test_why_a_reference_is_not_used(answer: bool | ApiError, expected: str) -> None:
    world = World()
    world.api.answer = answer
    assert await world.refusals(question()) == {"fedora": expected}
    world.api.answer = True
    assert await world.refusals(question()) == {"fedora": expected}, "the answer counts for a while"
    assert len(world.api.asked) == 1
    world.api.seconds = ANSWER_SECONDS
    assert await world.refusals(question()) == {}


async def test_a_right_that_was_taken_away_ends_the_answer_after_its_time() -> None:
    world = World()
    assert await world.refusals(question()) == {}
    world.api.answer, world.api.seconds = False, ANSWER_SECONDS - 1
    assert await world.refusals(question()) == {}
    world.api.seconds = ANSWER_SECONDS
    assert "fedora" in await world.refusals(question())


async def test_a_refused_disk_without_an_image_names_its_data_source() -> None:
    rights, _ = a_review(False)
    await rights.ask([question()])
    (refusal,) = rights.refusals({"root": question()}, kept=()).values()
    assert refusal.endswith("its VMs name the DataSource, about which CDI decides")


async def test_many_pools_of_one_author_cost_one_request() -> None:
    world = World()
    await world.refusals(question(), question())
    await world.refusals(question())
    assert len(world.api.asked) == 1
    await world.refusals(question(BOB))
    assert len(world.api.asked) == 2


def test_a_reference_is_not_used_before_anybody_has_asked() -> None:
    found = World().rights.refusals({"root": question()}, kept={"root"})
    assert found == {"root": "the right of its author is not known yet"}


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        pytest.param(True, False, id="yes"),
        pytest.param(False, True, id="no"),
        pytest.param(Unreachable("away"), False, id="no answer: admission has asked"),
    ],
)
async def test_the_first_state_of_a_reference(answer: bool | ApiError, refused: bool) -> None:
    rights, _ = a_review(answer)
    await rights.ask([question()])
    assert bool(rights.refusals({"root": question()}, kept=())) is refused


async def test_the_memory_is_bounded() -> None:
    world = World()
    world.rights = ReferenceRights(world.api, max_answers=2)
    assert await world.refusals(question(name="a"), question(name="b")) == {}
    assert await world.refusals(question(name="c")) == {}
    found = world.rights.refusals({name: question(name=name) for name in "abc"}, kept="abc")
    assert list(found) == ["a"], "the oldest is gone"


def test_the_condition() -> None:
    reasons = "Refused", "Allowed"
    assert references_refused({}, "pools", "web", reasons).status == "False"
    found = references_refused({"root": "ann may not"}, "pools", "web", reasons)
    assert (found.status, found.reason) == ("True", "Refused")
    assert found.message == (
        "disk root: ann may not. Disks keep the image that they had. Give the author the right, or become the author"
        " with a right of your own: kubectl annotate pools web poolhouse.dev/reference-authors=me --overwrite"
    )
