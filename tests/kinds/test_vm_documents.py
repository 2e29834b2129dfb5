"""Facts about VMs from their documents."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds.vm_documents import may_have_run, with_firmware_uuid

Json = dict[str, Any]

# KubeVirt's CalculateLegacyUUID("testvm"): of version 5, whatever the VM's namespace is.
TESTVM = "5a9fc181-957e-5c32-9e5a-2de5e9673531"


def vm(state: str = "", *, firmware: Json | None = None, started_as: str | None = None, **spec: Any) -> Json:
    domain: Json = {"devices": {}} if firmware is None else {"devices": {}, "firmware": firmware}
    return {
        "metadata": {"namespace": "shop", "name": "testvm"},
        "spec": {"template": {"spec": {"domain": domain}}, **spec},
        "status": {"printableStatus": state} | ({"runStrategy": started_as} if started_as else {}),
    }


@pytest.mark.parametrize(
    ("found", "going", "ran"),
    [
        pytest.param(vm(running=True), False, False, id="before its first start"),
        pytest.param(vm("Stopped", running=True), False, False, id="KubeVirt says Stopped before the first one too"),
        pytest.param(vm("Stopped", runStrategy="Always"), False, False, id="Stopped before the first run, by strategy"),
        pytest.param(vm("Stopping", running=True), True, True, id="at its stop"),
        pytest.param(vm("Stopped", running=False), False, True, id="halted: nobody knows whether it ran"),
        pytest.param(vm("Stopped", runStrategy="Manual"), False, True, id="halted by whoever starts it"),
        pytest.param(vm(running=False), False, False, id="KubeVirt has not seen it yet"),
        pytest.param(
            vm("Stopped", runStrategy="RerunOnFailure", started_as="RerunOnFailure"),
            False,
            True,
            id="its guest shut down, and nobody starts it again",
        ),
        pytest.param(
            vm("CrashLoopBackOff", runStrategy="Always", started_as="Always"), False, True, id="between two tries"
        ),
        pytest.param(
            vm("DataVolumeError", running=False, started_as="Halted"), False, True, id="halted, and its disk failed"
        ),
    ],
)
def test_whether_a_vm_may_have_run(found: Json, going: bool, ran: bool) -> None:
    assert may_have_run(found, going=going) is ran


@pytest.mark.parametrize(
    ("firmware", "known_by"),
    [
        pytest.param(None, {"uuid": TESTVM}, id="the UUID that KubeVirt gives it"),
        pytest.param({"serial": "a"}, {"serial": "a", "uuid": TESTVM}, id="the UUID is added to a serial"),
        pytest.param({"uuid": "b"}, {"uuid": "b"}, id="its own stays"),
    ],
)
def test_the_firmware_uuid_is_derived_from_the_name(firmware: Json | None, known_by: Json) -> None:
    assert with_firmware_uuid(vm(firmware=firmware)) == vm(firmware=known_by)
