"""A claim of a pool that does not exist: a warning, because the pool may follow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kinds.warm import claim, warm_pool
from tests.runtime.faulty_server import Request
from tests.webhook.builders import Json, request
from tests.webhook.conftest import RunningWebhook
from webhook.claimed_pools import ClaimedPool, why_not_served

LEAVING: Json = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pool(name: str, *, default: bool = False, **metadata: Any) -> Json:
    document = warm_pool(name, default=default)
    return {**document, "metadata": {**document["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("name", "pools", "expected"),
    [
        pytest.param("web", [pool("web")], "", id="the pool exists"),
        pytest.param("", [pool("web", default=True)], "", id="there is a default pool"),
        pytest.param("webb", [pool("web"), pool("mac")], 'no warm pool webb; did you mean "web"?', id="misspelt"),
        pytest.param("big", [pool("web"), pool("mac")], "no warm pool big; its pools: mac, web.", id="another name"),
        pytest.param("web", [], "no warm pool web; its pools: none.", id="no pool at all"),
        pytest.param("web", [pool("web", **LEAVING)], "no warm pool web", id="the pool is being deleted"),
        pytest.param("", [pool("web")], "has no default pool; its pools: web.", id="no default pool"),
        pytest.param("", [pool("web", default=True, **LEAVING)], "no default pool", id="the default is being deleted"),
    ],
)
def test_why_no_pool_serves_the_claim(name: str, pools: list[Json], expected: str) -> None:
    found = why_not_served(name, pools, 10)
    assert expected in found
    assert bool(found) == bool(expected)
    assert not found or (found.startswith("spec.poolName: ") and "within 10 s" in found)


async def test_an_existing_pool_costs_a_request_a_minute_and_a_missing_one_each_time(webhook: RunningWebhook) -> None:
    listed: list[str] = []
    there, code, time = [pool("web")], 200, 0.0

    async def listing(http: Request) -> None:
        listed.append(http.path.partition("?")[0])
        await http.answer(code, {"metadata": {"resourceVersion": "1"}, "items": there})

    webhook.api_server.script = listing
    check = ClaimedPool(webhook.service.api, budget_seconds=10, now=lambda: time)

    async def warned(name: str, old: Json | None = None) -> tuple[str, ...]:
        response = await check.handle(request(claim(poolName=name, bindTimeoutSeconds=7), old))
        assert not response.problems, "the pool may follow its claim"
        return response.warnings

    assert [await warned("web"), await warned("web")] == [(), ()]
    assert listed == ["/apis/poolhouse.dev/v1alpha1/namespaces/shop/virtualmachinewarmpools"]
    for _ in range(2):
        assert "within 7 s" in (await warned("late"))[0]
    assert len(listed) == 3
    there.append(pool("late"))
    assert await warned("late") == ()
    there.clear()
    time = 61.0
    assert len(await warned("web")) == 1
    assert await warned("web", claim(poolName="web")) == (), "the field of a stored claim cannot change"
    code = 403
    assert await warned("web") == (), "nothing is known"
