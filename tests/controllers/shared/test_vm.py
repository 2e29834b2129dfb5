"""The view of a VM, whatever its document lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controllers.pool.sources import by_base_name, by_owner
from controllers.shared.vm import RetainedDisk, join_vmi, parse_retained_disk, parse_vm
from controllers.shared.vmi import VMI
from poolhouse.api.kinds.meta import REPLACED_DISKS

Json = dict[str, Any]


def vm(metadata: Json | None = None, spec: Json | None = None, status: Json | None = None) -> Json:
    return {
        "metadata": {"namespace": "default", "name": "web-1", "uid": "u", **(metadata or {})},
        "spec": spec or {},
        "status": status or {},
    }


def owned(kind: str = "VirtualMachinePool", version: str = "kubevirt.io/v1", controller: bool = True) -> Json:
    owner = {"apiVersion": version, "kind": kind, "name": "web", "uid": "u-web", "controller": controller}
    return vm({"ownerReferences": [{"uid": "x", "kind": "Other", "name": "y"}, owner]})


OTHERS = owned(controller=False)
OTHERS["metadata"]["ownerReferences"][0]["controller"] = True


@pytest.mark.parametrize(
    ("given", "member"),
    [
        pytest.param(owned(), True, id="its controller is a pool of ours"),
        pytest.param(owned(controller=False), True, id="an owner that is not its controller yet"),
        pytest.param(OTHERS, False, id="another controller"),
        pytest.param(owned(version="pool.kubevirt.io/v1alpha1"), False, id="KubeVirt's own pool"),
        pytest.param(owned(kind="VirtualMachineWarmPool"), False, id="another kind"),
        pytest.param(vm({"labels": {"poolhouse.dev/pool": "web"}}), False, id="a label is not ownership"),
    ],
)
def test_the_owner_reference_makes_a_vm_a_member(given: Json, member: bool) -> None:
    found = parse_vm(given)
    assert list(by_owner(found)) == ([("default", "u-web")] if member else [])
    assert found.pool_name == ("web" if member else "")
    assert list(by_base_name(found)) == [("default", "web")]


@pytest.mark.parametrize("controller", [True, False])
def test_a_pool_adopts_a_vm_whose_reference_names_no_controller(controller: bool) -> None:
    assert parse_vm(owned(controller=controller)).adopted is controller


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param("root-3=h1,data-0123456789-3=h2", "root-3=h1,data-0123456789-3=h2", id="disks of the VM"),
        pytest.param("root-3=!", "root-3=!", id="a disk whose hash is damaged"),
        pytest.param(" root-3=h1 ,", " root-3=h1 ", id="spaces and an entry without a name"),
        pytest.param("!!bad=@@", "", id="what is no name"),
        pytest.param("root=h1,Root-3=h1,root-3/x-3=h1,-3=h1", "", id="what is no name of a disk of a pool"),
        pytest.param("root-2=h1,root-3=h1", "root-3=h1", id="a disk of another VM"),
        pytest.param("", "", id="none"),
    ],
)
def test_replaced_disks_have_the_ordinal_of_their_vm(annotation: str, expected: str) -> None:
    assert parse_vm(vm({"name": "web-3", "annotations": {REPLACED_DISKS: annotation}})).replaced_disks == expected
    assert parse_vm(vm({"name": "web", "annotations": {REPLACED_DISKS: annotation}})).replaced_disks == ""


STOPPED = {"printableStatus": "Stopped"}
RERUN = {"runStrategy": "RerunOnFailure"}
ASKED = {"stateChangeRequests": [{"action": "Stop", "uid": "run"}, {"action": "Start"}]}
FAILS = {"startFailure": {"consecutiveFailCount": 1}}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({"running": True}, {}, True, id="running"),
        pytest.param({"running": False}, {}, False, id="not running"),
        pytest.param({"runStrategy": "Always"}, {}, True, id="Always"),
        pytest.param({"runStrategy": "RerunOnFailure"}, {}, True, id="RerunOnFailure"),
        pytest.param({"runStrategy": "Halted"}, {"created": True}, False, id="Halted, on its way down"),
        pytest.param({"runStrategy": "Manual"}, {}, False, id="Manual, not started"),
        pytest.param({"runStrategy": "Manual"}, {"created": True}, True, id="Manual, started"),
        pytest.param({"runStrategy": "Once"}, {}, True, id="Once"),
        pytest.param({"runStrategy": "Always"}, STOPPED | {"runStrategy": "Always"}, True, id="Always, ended"),
        pytest.param({"runStrategy": "RerunOnFailure"}, STOPPED | RERUN, False, id="RerunOnFailure, shut down"),
        pytest.param({"runStrategy": "RerunOnFailure"}, STOPPED, True, id="RerunOnFailure, never started"),
        pytest.param(
            {"runStrategy": "RerunOnFailure"},
            STOPPED | {"runStrategy": "Halted"},
            True,
            id="RerunOnFailure, was halted",
        ),
        pytest.param({"runStrategy": "RerunOnFailure"}, STOPPED | RERUN | ASKED, True, id="RerunOnFailure, rerun"),
        pytest.param({"runStrategy": "RerunOnFailure"}, STOPPED | RERUN | FAILS, True, id="RerunOnFailure, fails"),
        pytest.param({"runStrategy": "RerunOnFailure"}, {**RERUN, "created": True}, True, id="RerunOnFailure, runs"),
        pytest.param({"runStrategy": "Once"}, STOPPED | {"created": True}, False, id="Once, ended"),
        pytest.param({"runStrategy": "Once"}, STOPPED | {"created": True} | FAILS, True, id="Once, failed to start"),
        pytest.param({"runStrategy": "Once"}, STOPPED, True, id="Once, about to start"),
        pytest.param({"runStrategy": "Manual"}, STOPPED | {"created": True}, False, id="Manual, ended"),
        pytest.param(
            {"runStrategy": "Manual"}, STOPPED | {"created": True} | ASKED, True, id="Manual, asked for again"
        ),
        pytest.param({}, {}, False, id="nothing said"),
    ],
)
def test_whether_a_vm_should_run(spec: Json, status: Json, expected: bool) -> None:
    assert parse_vm(vm(spec=spec, status=status)).should_run is expected


def test_available() -> None:
    assert parse_vm(vm(spec={"running": False})).available
    assert not parse_vm(vm(spec={"running": False}, status={"created": True})).available
    assert not parse_vm(vm(spec={"running": True})).available
    over = parse_vm(vm(spec={"runStrategy": "Once"}, status={**STOPPED, "created": True}))
    assert replace(over, vmi=VMI("default", "web-1", "run", phase="Succeeded")).available
    assert over.halted
    found = parse_vm(vm(spec={"running": True}, status={"created": True, "ready": True}))
    assert not found.available, "its run is not seen"
    ready = VMI("default", "web-1", "run", ready=True)
    assert replace(found, vmi=ready).available
    assert not replace(found, vmi=replace(ready, deleted_at="now")).available
    assert not replace(found, vmi=replace(ready, ready=False)).available, "the next VMI starts"


@pytest.mark.parametrize(
    ("strategy", "phase", "available"),
    [
        pytest.param("Manual", "Succeeded", True, id="Manual, shut down"),
        pytest.param("Manual", "Failed", False, id="Manual, failed"),
        pytest.param("Once", "Succeeded", True, id="Once, shut down"),
        pytest.param("Once", "Failed", False, id="Once, failed"),
        pytest.param("Halted", "Failed", True, id="Halted, on its way down"),
    ],
)
def test_a_failed_vmi_was_not_shut_down(strategy: str, phase: str, available: bool) -> None:
    stopped = parse_vm(vm(spec={"runStrategy": strategy}, status={**STOPPED, "created": strategy != "Halted"}))
    found = join_vmi(stopped, VMI("default", "web-1", "run", phase=phase))
    assert found.available is available
    assert found.halted is available


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"annotations": {"poolhouse.dev/scale-in": "Protect"}}, "Protect", id="annotation"),
        pytest.param({"labels": {"poolhouse.dev/scale-in": "First"}}, "First", id="label"),
        pytest.param({"labels": {"poolhouse.dev/scale-in": "maybe"}}, "maybe", id="another value"),
    ],
)
def test_scale_in(metadata: Json, expected: str) -> None:
    assert parse_vm(vm(metadata)).scale_in == expected


@pytest.mark.parametrize(("status", "message"), [("True", "memory"), ("False", "")])
def test_a_required_restart(status: str, message: str) -> None:
    conditions = [{"type": "RestartRequired", "status": status, "message": "memory"}]
    assert parse_vm(vm(status={"conditions": conditions})).restart_required == message


def test_a_retained_disk() -> None:
    labels = {"poolhouse.dev/kept-by": "u-web", "poolhouse.dev/kept-for": "web-3"}
    given = {"metadata": {"namespace": "default", "name": "root-3", "labels": labels}}
    assert parse_retained_disk(given) == RetainedDisk("default", "root-3", "u-web", "web-3")


@pytest.mark.parametrize(
    ("condition", "created", "said"),
    [
        ({"reason": "FailedCreate", "status": "True", "message": "exceeded quota"}, False, "exceeded quota"),
        ({"reason": "FailedCreate", "status": "True", "message": "exceeded quota"}, True, ""),
        ({"reason": "FailedUpdateError", "status": "True", "message": "conflict"}, False, ""),
        ({"reason": "FailedCreate", "status": "False", "message": "exceeded quota"}, False, ""),
    ],
)
def test_why_kubevirt_could_not_create_the_vmi(condition: dict[str, str], created: bool, said: str) -> None:
    status = {"created": created, "conditions": [{"type": "Failure", **condition}]}
    assert parse_vm({"metadata": {"namespace": "shop", "name": "web-1"}, "status": status}).start_refusal == said
