"""Names of new VMs, and the placements that follow from them."""

from __future__ import annotations

from collections import Counter

import pytest

from controllers.warmpool.naming import draw_placement, unused_names
from poolhouse.api.kinds.warmpool import Placement


def test_each_seed_gives_new_names() -> None:
    first, second = unused_names("web", "seed.1", 100), unused_names("web", "seed.2", 100)
    assert len({*first, *second}) == 200
    assert all(name.startswith("web-") and len(name) == len("web-") + 6 for name in first)
    assert unused_names("web", "seed.1", 100) == first, "a look that is repeated asks for the same"


def test_used_names_are_left_out() -> None:
    (taken,) = unused_names("web", "seed", 1)
    assert taken not in unused_names("web", "seed", 20, {taken})


def test_zero_or_fewer_names() -> None:
    assert unused_names("web", "seed", 0) == unused_names("web", "seed", -3) == ()


@pytest.mark.parametrize(
    ("weights", "critical"),
    [
        # Of chi-square with one degree of freedom less than there are placements, at 0.1 %.
        pytest.param([1, 1, 1], 13.82, id="equal"),
        pytest.param([1, 2, 7], 13.82, id="weighted"),
        pytest.param([1] * 10, 27.88, id="many"),
    ],
)
@pytest.mark.parametrize("uid", ["a", "b", "c"])
@pytest.mark.sentence("5.3")
def test_placements_follow_their_weights(weights: list[int], critical: float, uid: str) -> None:
    placements = [Placement(name=f"p{n}", weight=weight) for n, weight in enumerate(weights)]
    names = unused_names("web", "seed", 3000)
    found = Counter(draw_placement(uid, name, placements) for name in names)
    expected = {f"p{n}": weight / sum(weights) * len(names) for n, weight in enumerate(weights)}
    chi_square = sum((found[name] - many) ** 2 / many for name, many in expected.items())
    assert chi_square < critical, found


def test_a_name_always_gets_the_same_placement() -> None:
    placements = [Placement(name="east"), Placement(name="west")]
    assert {draw_placement("u", "web-abc", placements) for _ in range(5)} == {
        draw_placement("u", "web-abc", placements)
    }


def test_a_single_placement_and_no_placement() -> None:
    assert {draw_placement("u", name, [Placement(name="only")]) for name in unused_names("web", "s", 50)} == {"only"}
    assert draw_placement("u", "web-abc", []) == ""


def test_a_placement_of_weight_zero_is_never_used() -> None:
    placements = [Placement(name="east", weight=0), Placement(name="west")]
    assert {draw_placement("u", name, placements) for name in unused_names("web", "s", 200)} == {"west"}
