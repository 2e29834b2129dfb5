"""Which request is next: the requests alone decide, and no clock."""

import pytest

from poolhouse.service.fair_queue import FairQueue, Head, TenantQueueFull, next_tenant

COSTLY = 400
SMALL, LARGE = 100, COSTLY + 1


@pytest.mark.parametrize(
    ("heads", "chosen"),
    [
        pytest.param([], None, id="nothing waits"),
        pytest.param([Head("a", 500, 1)], "a", id="a tenant that waits alone is next, however much it has used"),
        pytest.param([Head("a", 500, 1), Head("b", 100, 9)], "b", id="the tenant that has used least is next"),
        pytest.param([Head("a", 100, 7), Head("b", 100, 3)], "b", id="of equals, the oldest request is next"),
    ],
)
def test_next_tenant(heads: list[Head], chosen: str | None) -> None:
    head = next_tenant(heads)
    assert (head.tenant if head is not None else None) == chosen


Push = tuple[str, int]


@pytest.mark.parametrize(
    ("pushes", "costly", "order"),
    [
        pytest.param([("a", SMALL)] * 3, True, "aaa", id="one tenant keeps its order"),
        pytest.param([("a", SMALL)] * 3 + [("b", SMALL)] * 2, True, "ababa", id="equal requests alternate"),
        pytest.param([("a", 300), ("a", 300), *[("b", SMALL)] * 4], True, "abbbab", id="shares are costs, not counts"),
        pytest.param([("a", LARGE), ("b", LARGE), ("a", SMALL)], False, "a", id="costly requests wait for their turn"),
        pytest.param([("a", LARGE), ("a", SMALL)], True, "aa", id="all leave when costly ones may"),
    ],
)
def test_order(pushes: list[Push], costly: bool, order: str) -> None:
    queue: FairQueue[str] = FairQueue(max_per_tenant=10, costly=COSTLY)
    for tenant, cost in pushes:
        queue.push(tenant, tenant, cost)
    found = ""
    while (popped := queue.pop(costly=costly)) is not None:
        found += popped
    assert found == order
    assert len(queue) == len(pushes) - len(order)


def test_a_costly_request_does_not_hold_up_the_small_ones_of_its_tenant() -> None:
    queue: FairQueue[int] = FairQueue(max_per_tenant=10, costly=COSTLY)
    for cost in (LARGE, SMALL):
        queue.push(cost, "a", cost)
    assert queue.pop(costly=False) == SMALL
    assert queue.pop(costly=False) is None
    assert queue.pop(costly=True) == LARGE


def test_small_requests_can_be_left_to_others() -> None:
    queue: FairQueue[int] = FairQueue(max_per_tenant=10, costly=COSTLY)
    for cost in (SMALL, LARGE):
        queue.push(cost, "a", cost)
    assert queue.pop(small=False) == LARGE
    assert queue.pop(small=False) is None
    assert queue.pop() == SMALL


def test_a_tenant_that_was_away_gets_no_credit() -> None:
    queue: FairQueue[str] = FairQueue(max_per_tenant=100, costly=COSTLY)
    for _ in range(50):
        queue.push("a", "a", SMALL)
    for _ in range(40):
        queue.pop(costly=True)
    for _ in range(10):
        queue.push("b", "b", SMALL)
    first = "".join(queue.pop(costly=True) or "" for _ in range(10))
    assert first.count("b") == 5


def test_a_tenant_that_pauses_keeps_what_it_has_used() -> None:
    """A tenant cannot get ahead of others by waiting for each answer before its next request."""
    queue: FairQueue[str] = FairQueue(max_per_tenant=100, costly=COSTLY)
    for _ in range(6):
        queue.push("b", "b", SMALL)
    served = ""
    for _ in range(6):
        queue.push("a", "a", 2 * SMALL)
        popped = queue.pop(costly=True)
        assert popped is not None
        served += popped
        if popped == "a":
            served += queue.pop(costly=True) or ""
    assert served.count("a") <= served.count("b")


def test_dropped_requests_cost_their_tenant_nothing() -> None:
    queue: FairQueue[str] = FairQueue(max_per_tenant=100, costly=COSTLY)
    for item in ("late", "late", "good", "good"):
        queue.push(item, "a", SMALL)
    queue.push("b", "b", SMALL)
    assert [queue.pop(costly=True, wanted=lambda item: item != "late") for _ in range(2)] == [
        "good",
        "b",
    ]


def test_a_full_tenant_leaves_room_for_others() -> None:
    queue: FairQueue[str] = FairQueue(max_per_tenant=2, costly=COSTLY)
    for _ in range(2):
        queue.push("a", "a", SMALL)
    with pytest.raises(TenantQueueFull):
        queue.push("a", "a", SMALL)
    queue.push("b", "b", SMALL)
    assert len(queue) == 3


def test_names_of_tenants_are_forgotten_when_nobody_waits() -> None:
    queue: FairQueue[str] = FairQueue(max_per_tenant=2, costly=COSTLY)
    for number in range(1000):
        queue.push("x", f"tenant-{number}", SMALL)
        queue.pop(costly=True)
    assert not queue._used
