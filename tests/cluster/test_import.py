"""`poolhouse import pool` on the real API server, with KubeVirt's kind and objects as its controller leaves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from controllers.pool.import_steps import record_name
from controllers.pool.kubevirt_pools import KUBEVIRT_POOLS
from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.cli.import_pool import import_pool_of_kubevirt, observe
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, CRDS, VMS
from tests.cluster.importing import (
    PREFIX,
    continued,
    is_returned,
    kubevirt_at_work,
    pool_of_kubevirt,
    state,
    taken_back,
    there_and_back,
)
from tests.cluster.kubevirt_pools import CRD
from tests.cluster.pooling import Place, controller, exists, namespace, served, until
from tests.cluster.shell import Shell

Json = dict[str, Any]


@pytest_asyncio.fixture
async def kubevirt(control_plane: Any) -> AsyncIterator[Place]:
    """A namespace on a cluster with KubeVirt's pools."""
    async with namespace(control_plane.kubeconfig, PREFIX) as place:
        await place.api.patch(CRDS, None, CRD["metadata"]["name"], CRD, kind="apply", field_manager="tests", force=True)
        await served(place.api, KUBEVIRT_POOLS)
        try:
            async with kubevirt_at_work(place.api):
                yield place
        finally:
            await remove(place.api)


async def remove(api: Api) -> None:
    """Removes KubeVirt's pools and their CRD, so that other tests do not see it."""

    async def is_gone() -> bool:
        try:
            await api.get(CRDS, None, CRD["metadata"]["name"])
        except NotFound:
            return True
        return False

    for pool in (await api.list(KUBEVIRT_POOLS))[0]:
        where = pool["metadata"]["namespace"]
        await api.patch(KUBEVIRT_POOLS, where, pool["metadata"]["name"], {"metadata": {"finalizers": None}})
    await api.delete(CRDS, None, CRD["metadata"]["name"])
    await until(is_gone, True)


LATE_WRITE = 9
"""KubeVirt's pool and Poolhouse's both exist before this write of an import, and of the way back."""


async def test_an_interrupted_import_continues(kubevirt: Place) -> None:
    assert await continued(kubevirt, LATE_WRITE)


async def test_an_interrupted_import_is_taken_back(kubevirt: Place) -> None:
    assert await taken_back(kubevirt, LATE_WRITE)


async def test_a_pool_stays_when_its_way_back_is_interrupted(control_plane: Any, kubevirt: Place) -> None:
    async with controller(control_plane.kubeconfig):
        assert await there_and_back(kubevirt, "web", range(LATE_WRITE, LATE_WRITE + 1)) == [True]


async def test_an_import_restarts_no_vm_and_continues_the_pool(control_plane: Any, kubevirt: Place) -> None:
    place = kubevirt
    await pool_of_kubevirt(place, updateStrategy={"opportunistic": {}})
    before = await state(place, "web")
    run = partial(Shell(place, control_plane.kubeconfig).run, "import", "pool", "web")
    shown = await run("--dry-run")
    assert shown.exit_code == 0, shown.output
    assert "spec.maxUnavailable: not set -> spec.maxUnavailable: 100%" in shown.stdout
    asked = await run()
    assert (asked.exit_code, "give --yes" in asked.output) == (1, True)
    assert (await observe(place.api, place.namespace, "web")).record is None
    async with controller(control_plane.kubeconfig):
        done = await run("--yes")
        assert done.exit_code == 0, done.output
        await until(lambda: counts(place), (3, 2, 0))
        after = await state(place, "web")
        assert after["vms"].keys() == before["vms"].keys()
        assert after["vmis"] == before["vmis"]
        assert {name: uid for name, (uid, _) in after["vms"].items()} == {
            name: uid for name, (uid, _) in before["vms"].items()
        }
        assert after["vms"] == before["vms"]
        assert (await place.seen())["metadata"]["labels"] == {"team": "shop"}
        await place.api.delete(VMS, place.namespace, "web-0")
        await until(place.names, ["web-0", "web-1", "web-2"])
    again = await run("--yes")
    assert (again.exit_code, "imported already" in again.output) == (1, True)


async def test_the_way_back_asks_and_says_what_changes(control_plane: Any, kubevirt: Place) -> None:
    place = kubevirt
    pool = await pool_of_kubevirt(place)
    await import_pool_of_kubevirt(place.api, place.namespace, "web")
    run = partial(Shell(place, control_plane.kubeconfig).run, "import", "pool", "web", "--back")
    async with controller(control_plane.kubeconfig):
        await place.change(replicas=4, maxUnavailable=1)
        await until(lambda: exists(place.api, VMS, place.namespace, "web-3"), True)
        refused = await run("--yes")
        assert (refused.exit_code, "--drop maxUnavailable" in refused.output) == (1, True)
        shown = await run("--dry-run", "--drop", "maxUnavailable")
        assert shown.exit_code == 0, shown.output
        assert "spec.replicas: 3 -> spec.replicas: 4 (as it is now)" in shown.stdout
        assert "disk web-root-7: KubeVirt gives it to the next web-7" in shown.stdout
        asked = await run("--drop", "maxUnavailable")
        assert (asked.exit_code, "give --yes" in asked.output) == (1, True)
        assert not (await observe(place.api, place.namespace, "web")).returns
        done = await run("--yes", "--drop", "maxUnavailable")
        assert done.exit_code == 0, done.output
    await is_returned(place, "web", pool)
    again = await run("--yes")
    assert (again.exit_code, "no import of pool web has begun" in again.output) == (1, True)
    await import_pool_of_kubevirt(place.api, place.namespace, "web")
    assert len(await place.vms()) == 4


async def counts(place: Place) -> tuple[int, int, int]:
    status = (await place.seen()).get("status", {})
    return status.get("replicas", 0), status.get("updatedReplicas", 0), status.get("terminatingReplicas", 0)


async def test_what_stops_an_import_is_said_at_once_and_nothing_is_written(kubevirt: Place) -> None:
    place = kubevirt
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
    pool = await pool_of_kubevirt(place, scaleInStrategy=strategy)
    await place.api.delete(CONTROLLER_REVISIONS, place.namespace, "web-1")
    with pytest.raises(Exception, match=r"sortPolicy.*\n.*VM web-1: the revision web-1 does not exist.*\n.*VMI web-1"):
        await import_pool_of_kubevirt(place.api, place.namespace, "web")
    with pytest.raises(NotFound):
        await place.api.get(CONTROLLER_REVISIONS, place.namespace, record_name("web"))
    now = await place.api.get(KUBEVIRT_POOLS, place.namespace, "web")
    assert now["spec"] == pool["spec"]
    with pytest.raises(NotFound):
        await place.api.get(POOLS, place.namespace, "web")
    assert all(controller_of(each) for each in (await place.vms()).values())
