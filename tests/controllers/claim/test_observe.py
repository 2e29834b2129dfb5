"""What a snapshot of a claim has."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.claim.allocator import Allocator, Stores
from controllers.claim.observe import ClaimObserver
from controllers.claim.record import ClaimRecord
from controllers.warmpool.warm_pool import SOURCE
from kinds.warm_states import WarmState
from runtime.store import Store
from tests.controllers.claim.builders import a_claim
from tests.controllers.warmpool.builders import a_cache, a_pool, a_vm


@pytest.mark.parametrize(
    ("facts", "full"),
    [
        pytest.param({}, True, id="maxTotal is reached"),
        pytest.param({"deleting": True}, True, id="VMs that are being deleted count"),
        pytest.param({"orphaned": "TemplateChanged"}, False, id="orphaned VMs do not"),
    ],
)
def test_full_pool(facts: dict[str, Any], full: bool) -> None:
    pools = SOURCE.store()
    pools.put(("ns", "web"), a_pool(2, maxTotal=2))
    stores = Stores(Store(), pools, a_cache(*(a_vm(name, WarmState.UNHEALTHY, **facts) for name in "ab")))
    observe = ClaimObserver(Allocator(stores), lambda: 0.0)
    assert observe(a_claim(), ClaimRecord()).pool_full is full
