from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import replaced
from poolhouse.stack.engine.objects import VM, VMI
from poolhouse.stack.engine.vm.subresources import (
    OPTIONS,
    Change,
    CreateMigration,
    QueueStateChanges,
    SetGracePeriod,
    SetPaused,
    SetRunning,
    StatusError,
    check_options,
    plan_request,
    plan_volume_request,
    vm_patch,
)
from tests.fuzz.mutations import at_path, paths
from tests.stack.engine.builders import asked, vm, vmi

PAUSED = vmi(status={"conditions": [{"type": "Paused", "status": "True", "reason": "PausedByUser"}]})
STOP, START = {"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}


@pytest.mark.parametrize(
    ("verb", "vm", "vmi", "options", "wanted"),
    [
        pytest.param("start", vm("Halted"), None, {}, [SetRunning(True)], id="start a halted VM"),
        pytest.param(
            "start",
            vm("Halted"),
            None,
            {"paused": True},
            [QueueStateChanges(({"action": "Start", "data": {"paused": "true"}},))],
            id="start a halted VM paused",
        ),
        pytest.param("start", vm("Manual"), None, {}, [QueueStateChanges((START,))], id="start a manual VM"),
        pytest.param(
            "start",
            vm("Manual"),
            vmi("Failed"),
            {},
            [QueueStateChanges((STOP, START))],
            id="start a manual VM after a failed VMI",
        ),
        pytest.param("start", vm(), vmi(), {}, "409 VM is already running", id="start a running VM"),
        pytest.param(
            "start",
            vm(),
            None,
            {},
            "409 Always does not support manual start requests",
            id="start a VM that starts by itself",
        ),
        pytest.param("start", None, None, {}, '404 virtualmachine.kubevirt.io "vm" not found', id="start a missing VM"),
        pytest.param("stop", vm(), vmi(), {}, [SetRunning(False)], id="stop a running VM"),
        pytest.param(
            "stop",
            vm(status=asked("Stop")),
            vmi(),
            {},
            [QueueStateChanges((), replace=True), SetRunning(False)],
            id="stop a VM that restarts",
        ),
        pytest.param(
            "stop",
            vm("Manual"),
            vmi(),
            {},
            [QueueStateChanges((STOP,), replace=True)],
            id="stop a manual VM",
        ),
        pytest.param(
            "stop",
            vm("Manual"),
            vmi(),
            {"gracePeriod": 0},
            [SetGracePeriod(0), QueueStateChanges((STOP,), replace=True)],
            id="stop without a grace period",
        ),
        pytest.param("stop", vm("Manual"), None, {}, "409 VM is not running", id="stop a VM without a VMI"),
        pytest.param(
            "stop",
            vm("Halted"),
            vmi(),
            {},
            "409 requests with a shorter graceperiod",
            id="stop a halted VM",
        ),
        pytest.param("restart", vm(), vmi(), {}, [QueueStateChanges((STOP, START))], id="restart"),
        pytest.param(
            "restart",
            vm(),
            vmi(),
            {"gracePeriodSeconds": 0},
            [SetGracePeriod(1), QueueStateChanges((STOP, START))],
            id="restart without a grace period",
        ),
        pytest.param(
            "restart",
            vm(),
            vmi(),
            {"gracePeriodSeconds": 5},
            "400 only gracePeriod=0 is supported",
            id="restart with a grace period",
        ),
        pytest.param("restart", vm(), None, {}, "409 VM is not running: Halted", id="restart a VM without a VMI"),
        pytest.param(
            "restart",
            vm("Halted"),
            vmi(),
            {},
            "409 RunStategy Halted does not",
            id="restart a halted VM",
        ),
        pytest.param("pause", None, vmi(), {}, [SetPaused(True)], id="pause"),
        pytest.param("pause", None, PAUSED, {}, "409 VMI is already paused", id="pause a paused VMI"),
        pytest.param("unpause", None, PAUSED, {}, [SetPaused(False)], id="unpause"),
        pytest.param("unpause", None, vmi(), {}, "409 VMI is not paused", id="unpause a VMI that is not paused"),
        pytest.param("unpause", None, vmi("Scheduled"), {}, "409 VMI is not running", id="unpause a scheduled VMI"),
        pytest.param(
            "pause",
            None,
            vmi(liveness_probe="httpGet"),
            {},
            "403 Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported",
            id="pause a VMI with a liveness probe",
        ),
        pytest.param("pause", None, vmi(liveness_probe="guestAgentPing"), {}, [SetPaused(True)], id="pause, with ping"),
        pytest.param("pause", None, vmi("Scheduled"), {}, "409 VM is not running", id="pause a scheduled VMI"),
        pytest.param(
            "pause", None, None, {}, '404 virtualmachineinstance.kubevirt.io "vm" not found', id="pause a missing VMI"
        ),
        pytest.param("migrate", vm(), vmi(), {}, [CreateMigration({})], id="migrate"),
        pytest.param("migrate", vm(), None, {}, '404 virtualmachineinstance.kubevirt.io "vm" not found', id="no VMI"),
        pytest.param("migrate", vm(), vmi("Scheduled"), {}, "409 VM is not running", id="migrate a scheduled VM"),
        pytest.param(
            "start",
            vm("Halted"),
            None,
            {"paused": "yes"},
            "400 cannot unmarshal string into Go struct field StartOptions.paused of type bool",
            id="an option of another type",
        ),
        pytest.param("start", vm("Halted"), None, {"x": 1}, [SetRunning(True)], id="unknown options are ignored"),
    ],
)
def test_changes_of_a_request(
    verb: str, vm: VM | None, vmi: VMI | None, options: dict[str, Any], wanted: list[Change] | str
) -> None:
    resource = "virtualmachineinstances" if verb in ("pause", "unpause") else "virtualmachines"
    if isinstance(wanted, str):
        code, _, message = wanted.partition(" ")
        with pytest.raises(StatusError) as refused:
            plan_request(verb, resource, "vm", vm, vmi, options)
        assert (refused.value.code, message in refused.value.message) == (int(code), True), refused.value.message
    else:
        assert plan_request(verb, resource, "vm", vm, vmi, options) == tuple(wanted)


@pytest.mark.parametrize(("field", "before", "after"), [("running", True, False), ("runStrategy", "Always", "Halted")])
def test_the_patch_uses_the_field_of_the_spec(field: str, before: Any, after: Any) -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {field: before}}
    where, patch = vm_patch(document, SetRunning(False))
    assert (where, patch["spec"], patch["metadata"]) == (None, {field: after}, {"resourceVersion": "7"})


def test_a_queued_request_blocks_the_next_one() -> None:
    document = {"metadata": {"name": "vm", "resourceVersion": "7"}, "spec": {}, "status": asked("Stop")}
    with pytest.raises(StatusError, match="stop/start already underway") as refused:
        vm_patch(document, QueueStateChanges((START,)))
    assert refused.value.code == 500
    vm_patch(document, QueueStateChanges((STOP,), replace=True))


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
ADD = {"name": "data", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": CLAIM}
OWNED = [{"kind": "VirtualMachine", "name": "vm"}]


def volume_request(verb: str, document: dict[str, Any] | None, options: dict[str, Any], vmi: bool = False) -> Any:
    resource = "virtualmachineinstances" if vmi else "virtualmachines"
    return plan_volume_request(verb, resource, "vm", document, options)


def test_a_volume_request_changes_the_template_of_a_vm() -> None:
    document = {"spec": {"template": {"spec": {}}}}
    patch = volume_request("addvolume", document, ADD).patch
    assert patch == {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}],
        "domain": {"devices": {"disks": [{"name": "data", "disk": {"bus": "scsi"}}]}},
    }
    removed = volume_request("removevolume", {"spec": {"template": {"spec": patch}}}, {"name": "data"})
    assert removed.patch == {"volumes": [], "domain": {"devices": {"disks": []}}}


@pytest.mark.parametrize(
    ("verb", "document", "options", "vmi", "refusal"),
    [
        pytest.param("addvolume", {}, {}, False, (400, "AddVolumeOptions requires name to be set"), id="no name"),
        pytest.param("addvolume", {}, {"name": "a"}, False, (400, "requires disk to not be nil"), id="no disk"),
        pytest.param(
            "addvolume", {}, {"name": "a", "disk": {}}, False, (400, "requires VolumeSource"), id="no volume source"
        ),
        pytest.param("removevolume", {}, {}, False, (400, "RemoveVolumeOptions requires name"), id="remove no name"),
        pytest.param("addvolume", None, ADD, False, (404, "not found"), id="no VM"),
        pytest.param(
            "addvolume",
            {"metadata": {"namespace": "default", "ownerReferences": OWNED}},
            ADD,
            True,
            (400, "VMI default/vm is owned by a VM"),
            id="the VMI of a VM",
        ),
        pytest.param("addvolume", {"metadata": {}}, ADD, True, (409, "VM is not running"), id="a VMI that starts"),
        pytest.param(
            "removevolume",
            {"spec": {"template": {"spec": {}}}},
            {"name": "data"},
            False,
            (409, r"Unable to remove volume \[data\] because it does not exist"),
            id="remove an unknown volume",
        ),
    ],
)
def test_volume_requests_that_kubevirt_refuses(
    verb: str, document: dict[str, Any] | None, options: dict[str, Any], vmi: bool, refusal: tuple[int, str]
) -> None:
    with pytest.raises(StatusError, match=refusal[1]) as refused:
        volume_request(verb, document, options, vmi)
    assert refused.value.code == refusal[0]


BODIES: dict[str, dict[str, Any]] = {
    "start": {"paused": True, "dryRun": ["All"]},
    "stop": {"gracePeriod": 1, "dryRun": ["All"]},
    "restart": {"gracePeriodSeconds": 0, "dryRun": ["All"]},
    "migrate": {"addedNodeSelector": {"a": "b"}, "dryRun": ["All"]},
    "pause": {"dryRun": ["All"]},
    "unpause": {"dryRun": ["All"]},
    "addvolume": {
        "name": "data",
        "disk": {"name": "data", "bootOrder": 1, "disk": {"bus": "scsi", "readonly": False}, "shareable": True},
        "volumeSource": {
            "dataVolume": {"name": "data", "hotpluggable": True},
            "persistentVolumeClaim": {"claimName": "data", "readOnly": False},
        },
        "dryRun": ["All"],
    },
    "removevolume": {"name": "data", "dryRun": ["All"]},
}


@pytest.mark.parametrize("verb", OPTIONS)
def test_a_wrong_type_at_each_path_of_a_body_is_refused(verb: str) -> None:
    check_options(verb, BODIES[verb])
    check_options(verb, dict.fromkeys(BODIES[verb]))
    for path in paths(BODIES[verb]):
        for wrong in ("AAA", 7, 1.5, True, [3], {"a": 3}):
            if type(wrong) is not type(at_path(BODIES[verb], path)):
                with pytest.raises(StatusError, match=str(path[0])) as refused:
                    check_options(verb, replaced(BODIES[verb], wrong, *path))
                assert refused.value.code == 400


def test_a_wrong_value_deep_in_a_disk_is_named() -> None:
    with pytest.raises(StatusError, match=r"AddvolumeOptions\.disk\.disk\.bus of type string"):
        check_options("addvolume", {**ADD, "disk": {"disk": {"bus": 7}}})
