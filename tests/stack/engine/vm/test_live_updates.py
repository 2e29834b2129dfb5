"""What becomes of a changed VM while it runs, as KubeVirt's virt-controller decides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.stack.engine.objects import VM, VMI, read_vm, read_vmi, template_hash
from poolhouse.stack.engine.resources import VM_FINALIZER, find_condition
from poolhouse.stack.engine.vm import live_updates
from poolhouse.stack.engine.vm.plan import UpdateVMI, plan_vm
from tests.stack.engine.builders import NOW

Json = dict[str, Any]


def spec(sockets: int | None = 1, guest: str | None = "2Gi", **given: Any) -> Json:
    cpu: Json = {"cpu": {"sockets": sockets, "cores": 1, "threads": 1}} if sockets else {}
    memory: Json = {"memory": {"guest": guest}} if guest else {}
    return {"architecture": "amd64", "domain": {"devices": {}, **cpu, **memory}, **given}


def a_vm(**given: Any) -> VM:
    metadata = {"namespace": "default", "name": "vm", "uid": "vm-uid", "finalizers": [VM_FINALIZER]}
    return read_vm({"metadata": metadata, "spec": {"runStrategy": "Always", "template": {"spec": spec(**given)}}})


def started(*, live: bool = True, status: Json | None = None, **given: Any) -> VMI:
    """The running VMI of a VM with this spec, with a status that has changed since."""
    metadata = {"namespace": "default", "name": "vm", "uid": "vmi-uid"}
    document = {"metadata": metadata, "spec": spec(**given)}
    vmi = live_updates.prepare(document, ("cpu", "memory"), live=live)
    found = read_vmi({**vmi, "status": {**vmi["status"], "phase": "Running", **(status or {})}})
    return replace(found, template_hash=template_hash(spec()))


def decided(vm: VM, vmi: VMI, *, live: bool = True) -> str:
    """The message of RestartRequired, or `live` if the VMI gets the change now, or `nothing`."""
    found = plan_vm(vm, vmi, {}, NOW, live=live)
    required = find_condition(found.status["conditions"], "RestartRequired")
    if required is not None:
        assert UpdateVMI() not in found.actions
        return str(required["message"])
    return "live" if UpdateVMI() in found.actions else "nothing"


@pytest.mark.parametrize(
    ("vm", "vmi", "expected"),
    [
        pytest.param(a_vm(), started(), "nothing", id="nothing has changed"),
        pytest.param(a_vm(sockets=4), started(), "live", id="sockets up to four times those at the start"),
        pytest.param(a_vm(sockets=5), started(), live_updates.MORE_SOCKETS, id="more sockets"),
        pytest.param(a_vm(sockets=1), started(sockets=2), live_updates.FEWER_SOCKETS, id="fewer sockets"),
        pytest.param(a_vm(sockets=None), started(), live_updates.NOT_LIVE, id="no CPU any more"),
        pytest.param(a_vm(guest="8Gi"), started(), "live", id="memory up to four times that at the start"),
        pytest.param(a_vm(guest="9Gi"), started(), live_updates.MORE_MEMORY, id="more memory"),
        pytest.param(a_vm(guest="1Gi"), started(), live_updates.LESS_THAN_AT_START, id="less memory than at the start"),
        pytest.param(a_vm(guest="3000001Ki"), started(), live_updates.NOT_ALIGNED, id="memory that is not aligned"),
        pytest.param(
            a_vm(guest="256Mi"), started(guest="128Mi"), live_updates.NO_MEMORY_HOTPLUG, id="memory of a small VM"
        ),
        pytest.param(a_vm(nodeSelector={"zone": "a"}), started(), "live", id="another placement"),
        pytest.param(a_vm(tolerations=[{"key": "a"}]), started(), "live", id="a toleration"),
        pytest.param(
            a_vm(sockets=2, terminationGracePeriodSeconds=3), started(), live_updates.NOT_LIVE, id="any other field"
        ),
        pytest.param(
            a_vm(sockets=2),
            started(status={"conditions": [{"type": "HotVCPUChange", "status": "True"}]}),
            "nothing",
            id="a change waits for the one before",
        ),
        pytest.param(
            a_vm(sockets=2),
            started(status={"migrationState": {"startTimestamp": "x"}}),
            "nothing",
            id="a change waits for a migration",
        ),
    ],
)
def test_kubevirt_changes_the_running_vmi_or_requires_a_restart(vm: VM, vmi: VMI, expected: str) -> None:
    assert decided(vm, vmi) == expected


@pytest.mark.parametrize("change", [{"sockets": 2}, {"guest": "4Gi"}, {"nodeSelector": {"zone": "a"}}])
def test_with_the_strategy_stage_each_change_requires_a_restart(change: Json) -> None:
    assert decided(a_vm(**change), started(live=False), live=False) == live_updates.NOT_LIVE


def test_the_patch_has_what_has_changed() -> None:
    wanted = spec(sockets=2, guest="4Gi", nodeSelector={"zone": "b"})
    before = spec(nodeSelector={"zone": "a", "disk": "ssd"}, tolerations=[{"key": "a"}])
    vmi = started(nodeSelector={"zone": "a", "disk": "ssd"}, tolerations=[{"key": "a"}])
    vm = a_vm(sockets=2, guest="4Gi", nodeSelector={"zone": "b"})
    assert live_updates.plan_vmi(wanted, before, vm, vmi) == {
        "domain": {"cpu": {"sockets": 2}, "memory": {"guest": "4Gi"}},
        "nodeSelector": {"zone": "b", "disk": None},
        "tolerations": None,
    }


def test_a_vmi_has_conditions_until_its_guest_has_the_change() -> None:
    changed = started(sockets=2, guest="4Gi", status={"currentCPUTopology": {"sockets": 1}})
    assert [each["type"] for each in live_updates.conditions(changed)] == ["HotVCPUChange"]
    assert live_updates.applied(changed) == {"currentCPUTopology": {"sockets": 2}}
    less = started(status={"memory": {"guestAtBoot": "2Gi", "guestRequested": "4Gi", "guestCurrent": "4Gi"}})
    assert [each["type"] for each in live_updates.conditions(less)] == ["HotMemoryChange"]
    assert live_updates.applied(less) == {"memory": {"guestRequested": str(2 << 30), "guestCurrent": str(2 << 30)}}
    assert not any(live_updates.conditions(started()))


def test_a_hypervisor_without_hotplug_gives_no_room() -> None:
    document = {"metadata": {"name": "vm"}, "spec": spec()}
    prepared = live_updates.prepare(document, (), live=True)
    assert prepared["spec"] == document["spec"]
    assert prepared["status"]["memory"]["guestAtBoot"] == "2Gi"
