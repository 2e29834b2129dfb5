"""Requests to KubeVirt's subresources, with an engine that refuses what virt-api refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from controllers.shared.subresources import RESOURCES, Verb
from poolhouse.runtime.errors import ApiError, Conflict
from poolhouse.runtime.resource import VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.cluster.pooling import Place, controller, namespace, template
from tests.cluster.simulated.test_engine import vm
from tests.cluster.test_pool import condition
from tests.waiting import eventually, until

Json = dict[str, Any]


@pytest_asyncio.fixture
async def place(simulated: StackPaths) -> AsyncIterator[Place]:
    async with namespace(simulated.kubeconfig) as found:
        yield found


async def put(place: Place, verb: Verb) -> None:
    await place.api.put_subresource(RESOURCES[verb], place.namespace, "a", verb)


async def make(place: Place, run_strategy: str, status: str) -> None:
    document = vm("a", runStrategy=run_strategy)
    document["metadata"]["namespace"] = place.namespace
    await place.api.create(VMS, document)
    await until(lambda: printable_status(place), status)


async def printable_status(place: Place) -> str:
    found = await place.api.get(VMS, place.namespace, "a")
    return str((found.get("status") or {}).get("printableStatus"))


@pytest.mark.parametrize(
    ("run_strategy", "before", "requests"),
    [
        pytest.param("Halted", "Stopped", [("start", "Running")], id="start a halted VM"),
        pytest.param("Manual", "Stopped", [("start", "Running"), ("stop", "Stopped")], id="start and stop, Manual"),
        pytest.param("Always", "Running", [("stop", "Stopped"), ("start", "Running")], id="stop and start, Always"),
        pytest.param("Always", "Running", [("pause", "Paused"), ("unpause", "Running")], id="pause and unpause"),
    ],
)
async def test_every_request_of_the_controllers(
    place: Place, run_strategy: str, before: str, requests: list[tuple[Verb, str]]
) -> None:
    await make(place, run_strategy, before)
    for verb, after in requests:
        await put(place, verb)
        await until(lambda: printable_status(place), after)


async def test_a_restart_replaces_the_vmi(place: Place) -> None:
    await make(place, "RerunOnFailure", "Running")
    before = await vmi_uid(place)
    await put(place, "restart")

    async def another() -> bool:
        return await vmi_uid(place) not in (before, "") and await printable_status(place) == "Running"

    await eventually(another)


async def vmi_uid(place: Place) -> str:
    found, _ = await place.api.list(VMIS, place.namespace)
    return next((str(each["metadata"]["uid"]) for each in found), "")


@pytest.mark.parametrize(
    ("run_strategy", "status", "verb", "message"),
    [
        ("Always", "Running", "start", 'virtualmachine.kubevirt.io "a": VM is already running'),
        ("Halted", "Stopped", "stop", 'virtualmachine.kubevirt.io "a": VM is not running'),
        ("Halted", "Stopped", "restart", "RunStategy Halted does not support manual restart requests"),
        ("Manual", "Stopped", "restart", "VM is not running: Halted"),
        ("Always", "Running", "unpause", 'virtualmachineinstance.kubevirt.io "a": VMI is not paused'),
    ],
)
async def test_refusals_by_state(place: Place, run_strategy: str, status: str, verb: Verb, message: str) -> None:
    await make(place, run_strategy, status)
    with pytest.raises(Conflict, match=message.replace("(", r"\(")):
        await put(place, verb)


@pytest.mark.parametrize("verb", RESOURCES)
async def test_a_client_that_accepts_only_json_is_refused(place: Place, verb: Verb) -> None:
    path = RESOURCES[verb].path(place.namespace, "a", verb)
    with pytest.raises(ApiError) as refused:
        await place.api.request("PUT", path, body={}, headers={"Accept": "application/json"})
    assert (refused.value.status, refused.value.message.split("\n")[0]) == (406, "406: Not Acceptable")


@pytest.mark.parametrize("run_strategy", ["Manual", "RerunOnFailure"])
async def test_a_pool_restarts_vms_that_kubevirt_must_be_asked_for(
    simulated: StackPaths, place: Place, run_strategy: str
) -> None:
    spec = template()
    spec["spec"].pop("running", None)
    spec["spec"]["runStrategy"] = run_strategy
    async with controller(simulated.kubeconfig_of("controllers")):
        await place.pool(2, template=spec, maxUnavailable=1)
        await until(lambda: count_vms(place), 2)
        for name in await place.names():
            if run_strategy == "Manual":
                await place.api.put_subresource(RESOURCES["start"], place.namespace, name, "start")
        await until(lambda: phases(place), ["Running"] * 2)
        before = {each["metadata"]["uid"] for each in (await place.api.list(VMIS, place.namespace))[0]}
        spec["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
        await place.change(template=spec)

        async def restarted() -> bool:
            found, _ = await place.api.list(VMIS, place.namespace)
            cores = [(each["spec"]["domain"].get("cpu") or {}).get("cores") for each in found]
            return cores == [4, 4] and not before & {each["metadata"]["uid"] for each in found}

        await eventually(restarted)
        await until(lambda: condition(place, "Progressing"), ("True", "Complete"))


async def count_vms(place: Place) -> int:
    return len(await place.names())


async def phases(place: Place) -> list[str]:
    found, _ = await place.api.list(VMIS, place.namespace)
    return [(each.get("status") or {}).get("phase", "") for each in found]


async def test_virt_api_fills_and_checks_vms_before_poolhouse(place: Place) -> None:
    await make(place, "Halted", "Stopped")
    template = (await place.api.get(VMS, place.namespace, "a"))["spec"]["template"]
    domain = template["spec"]["domain"]
    assert (template["spec"]["architecture"], domain["machine"]) == ("amd64", {"type": "q35"})
    assert domain["firmware"].keys() == {"uuid", "serial"}
    assert template["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}
    refused = vm("b", running=True, runStrategy="Always")
    refused["metadata"]["namespace"] = place.namespace
    with pytest.raises(ApiError, match="Running and RunStrategy are mutually exclusive") as denied:
        await place.api.create(VMS, refused)
    assert (denied.value.status, denied.value.reason) == (422, "Invalid")
    assert 'admission webhook "virtualmachine-validator.kubevirt.io" denied the request' in denied.value.message


async def test_only_kubevirt_changes_a_vmi(place: Place) -> None:
    await make(place, "Always", "Running")
    with pytest.raises(ApiError, match="update of VMI object is restricted"):
        await place.api.patch(VMIS, place.namespace, "a", {"spec": {"terminationGracePeriodSeconds": 9}})
    with pytest.raises(ApiError, match="reserved kubevirt.io/ labels on a VMI object".replace(".", r"\.")):
        await place.api.patch(VMIS, place.namespace, "a", {"metadata": {"labels": {"kubevirt.io/nodeName": "x"}}})
    change = {"metadata": {"labels": {"team": "a"}}, "status": {"phase": "Failed"}}
    changed = await place.api.patch(VMIS, place.namespace, "a", change)
    assert changed["metadata"]["labels"]["team"] == "a"
    assert changed["status"]["phase"] == "Running", "virt-api takes the status of others back"
