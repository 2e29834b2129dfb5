"""VMs whose VMI is older than maxLifetimeSeconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.pool.plan import plan
from controllers.pool.rules.lifetime import ended, lifetime_end
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from poolhouse.api.apimachinery.timestamps import parse_time
from tests.controllers.pool.builders import NOW, a_pool, ago, halted, snapshot, vm, vmi

Json = dict[str, Any]
DAY = 86_400
CLOSED: Json = {"schedule": "0 13 * * *", "durationSeconds": 3600}
DRAIN: Json = {"name": "drain", "transition": "Restarting"}


def aged(ordinal: int, days: float, *, revision: str = "r1", run: Json | None = None, **given: Any) -> VM:
    found = vmi(f"web-{ordinal}", revision=revision, created_at=ago(days * DAY), **(run or {}))
    return vm(ordinal, vmi=found, revision=revision, **given)


def pool(*vms: VM, days: float = 7, **given: Any) -> PoolSnapshot:
    spec = {"maxUnavailable": 1, "maxLifetimeSeconds": int(days * DAY), **given}
    return snapshot(a_pool(len(vms), **spec), *vms)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(pool(aged(1, 6)), [], id="a young VM stays"),
        pytest.param(pool(aged(1, 7)), [("Restart", "web-1")], id="an old one is restarted"),
        pytest.param(pool(aged(1, 999), days=0), [], id="0 is no limit"),
        pytest.param(
            pool(aged(1, 7), aged(2, 8)), [("Restart", "web-2")], id="within maxUnavailable, the oldest first"
        ),
        pytest.param(
            pool(aged(2, 8), aged(1, 8), days=1 / DAY), [("Restart", "web-1")], id="of one second, the first by name"
        ),
        pytest.param(
            pool(aged(1, 8), aged(2, 8, ready=False), maxUnavailable=1), [("Restart", "web-2")], id="one that is down"
        ),
        pytest.param(pool(aged(1, 8), aged(2, 0, ready=False)), [], id="not while another is down"),
        pytest.param(
            snapshot(
                a_pool(2, maxUnavailable=1, maxLifetimeSeconds=7 * DAY, scaleInStrategy={"unmanaged": {}}),
                aged(1, 8),
                vm(2),
                vm(3, ready=False),
            ),
            [],
            id="not while another is down, though enough VMs are available",
        ),
        pytest.param(pool(aged(1, 8), maintenanceWindows=[CLOSED]), [], id="only in a maintenance window"),
        pytest.param(pool(aged(1, 8, run_strategy="Once")), [], id="nothing would start this VM again"),
        pytest.param(pool(aged(1, 8, run={"phase": "Succeeded"})), [], id="its guest has shut down"),
        pytest.param(pool(halted(1)), [], id="a halted VM has no lifetime"),
        pytest.param(pool(aged(1, 8), paused=True), [], id="not in a paused pool"),
        pytest.param(
            pool(aged(1, 8), lifecycleHooks=[DRAIN]),
            [("SetInService", "web-1"), ("Hold", "web-1")],
            id="after its hooks",
        ),
        pytest.param(pool(aged(1, 8, revision="r0")), [("Update", "web-1")], id="an update restarts it anyway"),
        pytest.param(
            pool(aged(1, 8, revision="r0"), updateStrategy={"opportunistic": {}}),
            [("Restart", "web-1")],
            id="an opportunistic update restarts no VM, so the lifetime does",
        ),
        pytest.param(
            pool(aged(1, 8, revision="r0"), updateStrategy={"proactive": {"steps": [{"pause": {}}]}}),
            [("Restart", "web-1")],
            id="a lifetime ends while the update is paused",
        ),
        pytest.param(
            pool(aged(1, 8, revision="r0"), updateStrategy={"proactive": {"partition": 1}}),
            [("Restart", "web-1")],
            id="the lifetime of a VM that the partition keeps ends",
        ),
    ],
)
def test_whose_lifetime_ends(observed: PoolSnapshot, expected: list[tuple[str, str]]) -> None:
    assert [(each.verb, each.name) for each in plan(observed, NOW).actions] == expected


def test_a_lifetime_ends_up_to_a_tenth_early_and_never_late() -> None:
    observed = pool(*(aged(number, 0) for number in range(1, 201)))
    found = [lifetime_end(observed, each) for each in observed.vms]
    left = sorted((end - NOW).total_seconds() / DAY for end in found if end is not None)
    assert len(left) == 200
    assert left[0] >= 7 * 0.9 - 1e-4
    assert left[-1] <= 7
    assert left[-1] - left[0] > 0.6, "they are spread over most of that tenth"
    assert found == [lifetime_end(observed, each) for each in observed.vms]


def test_the_pool_comes_back_when_the_next_lifetime_ends() -> None:
    observed = pool(aged(1, 1), aged(2, 2))
    end = lifetime_end(observed, observed.vms[1])
    assert end is not None
    assert plan(observed, NOW).again_seconds == (end - NOW).total_seconds()


def test_an_update_restarts_its_vms_and_their_lifetimes_the_others() -> None:
    (found,) = ended(pool(aged(1, 8, revision="r0"), aged(2, 8)), NOW)
    assert found.vm.name == "web-2"


def test_a_vm_that_waits_says_why() -> None:
    (wait,) = plan(pool(aged(1, 8), maintenanceWindows=[CLOSED]), NOW).waits
    opens = "2026-03-01T13:00:00Z"
    assert wait.reason == f"its lifetime has ended: the next maintenance window opens at {opens}"
    assert plan(pool(aged(1, 8), maintenanceWindows=[CLOSED]), NOW).again_seconds == (
        parse_time(opens) - NOW
    ) / timedelta(seconds=1)
