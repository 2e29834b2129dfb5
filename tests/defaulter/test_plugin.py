"""The hook over gRPC, called as virt-launcher calls it, and its manifests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from defaulter import hook, xml
from defaulter.contract import HARDWARE_ANNOTATION
from defaulter.plugin import METHOD, SERVICE, Request, answer, read
from poolhouse.cli.main import poolhouse
from poolhouse.manifests import plugin
from poolhouse.manifests.plugin import SOCKET
from tests.waiting import PATIENCE_SECONDS, wait_until

DOMAIN = """<domain type="kvm"><os><type machine="pc-q35-7.2">hvm</type></os><devices>
<disk><target dev="vda" bus="virtio"/><alias name="ua-root"/><address type="pci" domain="0x0000" bus="0x07" slot="0x00"
 function="0x0"/></disk><memballoon model="virtio"><address type="pci" domain="0x0000" bus="0x09" slot="0x00"
 function="0x0"/></memballoon></devices></domain>"""
RECORD = hook.build_record(xml.read(DOMAIN), "9.0.0", "7.2.0")
BARE = (
    '<domain type="kvm"><os><type machine="q35">hvm</type></os><devices><memballoon model="virtio"/></devices></domain>'
)

Ask = Callable[[bytes], bytes]


def field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def request(annotations: dict[str, str], domain: str = BARE) -> bytes:
    """As a launcher writes it: the type of the domain, the domain, the VMI, and why it is asked."""
    instance = json.dumps({"metadata": {"annotations": annotations}}).encode()
    context = field(4, field(1, b"Boot"))
    return field(1, b"libvirt") + field(2, domain.encode()) + field(3, instance) + context


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The sidecar, started as its container starts it."""
    socket = tmp_path_factory.mktemp("plugin") / "hook.sock"
    process = subprocess.Popen([sys.executable, "-m", "defaulter.plugin", str(socket)], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: socket.exists() or process.poll() is not None)
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            method = channel.unary_unary(f"/{SERVICE}/{METHOD}")
            yield lambda message: method(message, timeout=PATIENCE_SECONDS, wait_for_ready=True)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        process.communicate()


def answered(message: bytes) -> str:
    """The one field of an answer."""
    assert message[0] >> 3 == 1
    length = shift = 0
    at = 1
    while True:
        byte = message[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    assert at + length == len(message)
    return message[at:].decode()


def test_recorded_hardware_is_restored(ask: Ask) -> None:
    domain = xml.read(answered(ask(request({HARDWARE_ANNOTATION: RECORD}))))
    address = domain.find("devices/memballoon/address")
    assert address.get("bus") == "0x09"


def test_a_vm_without_a_record_does_not_change(ask: Ask) -> None:
    assert answered(ask(request({}))) == BARE


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(request({HARDWARE_ANNOTATION: RECORD.replace("0x09", "0x0a")}), id="a damaged record"),
        pytest.param(request({HARDWARE_ANNOTATION: RECORD}, "<domain"), id="half a domain"),
        pytest.param(request({HARDWARE_ANNOTATION: RECORD}, "<!DOCTYPE a>" + BARE), id="a document type"),
        pytest.param(field(2, BARE.encode()) + field(3, b"{"), id="no VMI"),
    ],
)
def test_a_message_that_cannot_be_restored_fails_the_define(ask: Ask, message: bytes) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        ask(message)
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert failed.value.details()


def test_a_malformed_message_fails_only_itself(ask: Ask) -> None:
    with pytest.raises(grpc.RpcError):
        ask(b"\x12\xff\xff")
    assert answered(ask(request({}))) == BARE


def test_unknown_fields_are_ignored() -> None:
    future = b"\x28\x96\x01" + b"\x31" + b"x" * 8 + b"\x3d" + b"x" * 4 + field(15, b"new")
    assert read(future + field(2, b"<a/>") + field(3, b"{}")) == Request(b"<a/>", b"{}")


@given(st.text(max_size=300))
def test_a_response_of_any_length_can_be_read(domain: str) -> None:
    assert answered(answer(domain)) == domain


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_rejected(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        read(message)


def test_the_plugin_selects_vms_by_the_annotation_of_the_record() -> None:
    assert plugin.HARDWARE_ANNOTATION == HARDWARE_ANNOTATION


def printed(*options: str) -> Any:
    result = CliRunner().invoke(poolhouse, ["hook", *options, "-o", "json"], standalone_mode=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_the_config_map_shows_how_to_use_it() -> None:
    usage = printed("-n", "vms")["metadata"]["annotations"]["poolhouse.dev/usage"]
    (sidecar,) = json.loads(usage.partition("hookSidecars: ")[2])
    assert sidecar["configMap"]["key"] == "onDefineDomain"


def test_plugin_policy_and_binding_refer_to_each_other() -> None:
    plugin, policy, binding = printed("--plugin", "--image", 'registry/poolhouse-defaulter:"1"')["items"]
    assert plugin["spec"]["domainHooks"][0]["sidecar"]["socketPath"] == SOCKET
    assert SOCKET.startswith(f"/var/run/kubevirt-plugin/{plugin['metadata']['name']}/"), "KubeVirt takes no other"
    assert plugin["spec"]["mutatingAdmissionPolicies"] == [{"name": policy["metadata"]["name"]}]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    expression = policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert json.dumps('registry/poolhouse-defaulter:"1"') in expression
    assert f'subPath: "{plugin["metadata"]["name"]}"' in expression, "or KubeVirt's own policy refuses the pod"


@pytest.mark.parametrize("options", [["--plugin"], ["--image", "x"]])
def test_a_plugin_needs_an_image(options: list[str]) -> None:
    assert CliRunner().invoke(poolhouse, ["hook", *options]).exit_code == 2
