"""Releases: VMs while Poolhouse is upgraded, uninstalled and installed again, and while KubeVirt is upgraded."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import choose
from poolhouse.runtime.resource import KUBEVIRTS, VMIS, VMS
from tests.e2e.domains import differences, read_domain
from tests.e2e.release import EmbeddedRelease, HelmRelease, Release
from tests.e2e.scope import POOLS, Json, Scope
from tests.e2e.test_older_vms import MANY, older, opt_in, opt_out, start_again


@pytest.fixture
def release(scope: Scope) -> Iterator[Release]:
    """Poolhouse on the cluster. It works again before the namespace of the test is deleted."""
    paths = scope.target.embedded
    found: Release = HelmRelease.find(scope.target) if paths is None else EmbeddedRelease(paths)
    try:
        yield found
    finally:
        found.restore()


@pytest.mark.needs(change="release")
async def test_upgrade(scope: Scope, release: Release) -> None:
    """An upgrade of Poolhouse and the way back restart no VM and change no spec"""
    await make_vms(scope)
    before = await seen(scope)
    await release.upgrade()
    await serves(scope)
    assert await seen(scope) == before
    await release.roll_back()
    assert await seen(scope) == before
    await start(scope, "older", "restart")
    assert await specs(scope) == before["specs"]


@pytest.mark.needs(change="release")
async def test_uninstallation(scope: Scope, release: Release) -> None:
    """Without Poolhouse VMs run on, and start as before. Installed again, it restarts none and serves its pools"""
    await make_vms(scope)
    before = await seen(scope)
    await release.uninstall()
    assert await seen(scope) == before
    await start(scope, "older", "restart")
    await start(scope, "web-1", "stop and start")
    without = await seen(scope)
    assert without["specs"] == before["specs"]
    await release.install()
    await serves(scope)
    assert await seen(scope) == without
    await start(scope, "older", "stop and start")
    await start(scope, "web-1", "restart")
    assert await specs(scope) == before["specs"]


@pytest.mark.needs(change="upgrade-kubevirt-to")
async def test_upgrade_of_kubevirt(scope: Scope) -> None:
    """An upgrade of KubeVirt restarts no VM and changes no spec, and VMs start in the new release as before"""
    await make_vms(scope)
    before, old = await seen(scope), await kubevirt(scope)
    command = ["apply", "--server-side", "--force-conflicts", "-f", scope.target.kubevirt_manifest]
    await asyncio.to_thread(subprocess.run, [*scope.target.kubectl, *command], check=True, timeout=600)
    await scope.becomes(lambda: is_later(scope, old), True)
    assert await seen(scope) == before
    await start(scope, "older", "restart")
    await start(scope, "web-1", "stop and start")
    await serves(scope)
    assert await specs(scope) == before["specs"]


async def make_vms(scope: Scope) -> None:
    """A VM that is older than Poolhouse and has been restarted since, and a pool."""
    await opt_out(scope)
    await scope.make_vm("older", older(scope, MANY))
    await scope.runs("older")
    await opt_in(scope)
    await scope.pool(1, scaleInStrategy={"proactive": {"selectionPolicy": {"basePolicy": "Newest"}}})
    await start(scope, "older", "restart")
    await scope.complete()


async def start(scope: Scope, name: str, how: str) -> None:
    """Starts the VM once more. Its domain must be as before."""
    vmi, before = await scope.runs(name), await read_domain(scope, name)
    moved = differences(before, await start_again(scope, vmi, how))
    assert not moved, f"{name}: {moved}"


async def seen(scope: Scope) -> dict[str, Any]:
    """All that must stay while nobody starts a VM."""
    vmis = await scope.uids(VMIS)
    return {
        "VMIs": vmis,
        "specs": await specs(scope),
        "domains": {name: await read_domain(scope, name) for name in vmis},
    }


async def specs(scope: Scope) -> dict[str, Json]:
    return {name: vm["spec"] for name, vm in (await scope.objects(VMS)).items()}


async def serves(scope: Scope) -> None:
    """Waits until Poolhouse scales the pool out and in."""
    await scope.scale(2)
    await scope.complete()
    await scope.scale(1)
    await scope.complete()
    await scope.stops("web-2")
    await scope.becomes(lambda: is_ready(scope), "True")


async def is_ready(scope: Scope) -> str | None:
    return (await scope.condition(POOLS, "web", "Ready")).get("status")


async def kubevirt(scope: Scope) -> Json:
    found, _ = await scope.api.list(KUBEVIRTS)
    return dict(choose(found) or {})


async def is_later(scope: Scope, old: Json) -> bool:
    """Whether the operator has deployed another release than the old one, with all its components."""
    status = (await kubevirt(scope))["status"]
    holds = {each["type"] for each in status["conditions"] if each["status"] == "True"}
    other = old["status"]["observedKubeVirtVersion"] != status["observedKubeVirtVersion"]
    complete = status["observedKubeVirtVersion"] == status["targetKubeVirtVersion"]
    return other and complete and "Available" in holds and "Progressing" not in holds
