"""VMs that keep failing, with guests that start and stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import VMIS
from tests.cluster.pooling import Place, template, until
from tests.cluster.simulated.test_pool_rollout import complete, running
from tests.cluster.test_pool import condition, said, status

__all__ = ["running"]

BROKEN = {"sim.poolhouse.dev/fail": "CrashLoopBackOff", "sim.poolhouse.dev/retry-seconds": "0.2"}


@pytest.mark.sentence("1.24", "1.41")
async def test_a_vm_that_crashes_again_and_again_after_it_has_run_is_replaced(running: Place) -> None:
    await running.pool(2, autohealing={"startupFailureThreshold": 2})
    await replaced_after(running, "sim.poolhouse.dev/crash-seconds")

    async def failures() -> object:
        return (await status(running, "healing"))["failures"]

    await until(failures, [])


@pytest.mark.sentence("1.24")
async def test_a_vm_whose_liveness_probe_fails_at_each_start_is_replaced(running: Place) -> None:
    probed = template()
    probe = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}
    probed["spec"]["template"]["spec"]["livenessProbe"] = probe
    await running.pool(2, autohealing={"startupFailureThreshold": 2}, template=probed)
    await replaced_after(running, "sim.poolhouse.dev/service-seconds")

    async def told() -> bool:
        events, _ = await running.api.list(EVENTS, running.namespace, field_selector="regarding.name=web-2")
        return any(str(each.get("note")).startswith("Liveness probe failed: ") for each in events)

    await until(told, True)


async def replaced_after(running: Place, fault: str) -> None:
    """Lets each start of web-2 fail by this fault, until the pool has replaced the VM and is complete."""
    await complete(running)
    before = (await running.vms())["web-2"]["metadata"]["uid"]
    await running.meta("web-2", annotations={fault: "0"})
    with suppress(NotFound):  # the annotation may have ended the guest already
        await running.api.delete(VMIS, running.namespace, "web-2")
    await until(lambda: replaced(running), 1)
    await until(lambda: another_vm(running, before), True)
    await complete(running)


async def test_healing_replaces_no_vm_while_all_fail(running: Place) -> None:
    await running.pool(4, autohealing={})
    await complete(running)
    before = {name: each["metadata"]["uid"] for name, each in (await running.vms()).items()}
    for name in before:
        await running.meta(name, annotations=BROKEN)
    # All at once, as when a registry goes away.
    await asyncio.gather(*(running.api.delete(VMIS, running.namespace, name) for name in before))
    await until(lambda: condition(running, "Healing"), ("False", "TooManyFailing"))
    # It says what most of them fail with, once most have got so far.
    await until(lambda: said(running, "Healing", "CrashLoopBackOff"), True)
    for name in await running.vms():
        await running.meta(name, annotations=dict.fromkeys(BROKEN))
    # The pauses between tries to start have grown meanwhile: 10, 20, 40, and in the end 300 seconds, as KubeVirt's.
    await until(lambda: status(running, "readyReplicas"), 4, 400)
    await until(lambda: condition(running, "Healing"), ("False", "NoFailingVMs"))
    assert {name: each["metadata"]["uid"] for name, each in (await running.vms()).items()} == before


async def another_vm(place: Place, before: str) -> bool:
    """Whether web-2 has another UID: the status counts a replacement before the old VM is gone."""
    found = (await place.vms()).get("web-2")
    return found is not None and found["metadata"]["uid"] != before


async def replaced(place: Place) -> int | None:
    return (await status(place, "healing") or {}).get("replaced")
