"""Bodies of requests: documents with and without an envelope, and bodies that are neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from defaulter.worker_protocol import Operation
from tests.defaulter.builders import disk, inner, nic, spec, vm
from tests.defaulter.conftest import Libvirt

pytestmark = pytest.mark.libvirt


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b"\x00",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"kind": "DefaultingRequest"}',
        b'{"kind": "DefaultingRequest", "object": [], "oldObject": 3, "seed": {}}',
    ],
)
def test_a_body_that_is_not_a_document_gets_400(libvirt: Libvirt, body: bytes) -> None:
    answer = libvirt.raw(body)
    assert answer.status == 400
    assert answer.content["problems"]


@pytest.mark.parametrize("depth", [50, 150, 300, 500, 900])
def test_deep_nesting_does_not_end_a_worker(libvirt: Libvirt, depth: int) -> None:
    deep = b'{"a":[' * depth + b"1" + b"]}" * depth
    body = json.dumps(vm(spec(disk(), domain={"future": 1}))).encode().replace(b'"future": 1', b'"future": ' + deep)
    assert libvirt.once.ask(Operation.DOCUMENT, body)[0] in (200, 400, 422)
    assert libvirt.default(vm(spec())).status == 200


def test_an_architecture_without_an_emulator_gets_501(libvirt: Libvirt) -> None:
    answer = libvirt.default(vm(spec(disk(), architecture="s390x")))
    assert answer.status in (200, 501), "501 where no emulator is installed: the webhook lets it pass, undefaulted"


def test_a_kubevirt_object_decides_what_the_settings_leave_open(libvirt: Libvirt) -> None:
    configuration = {"network": {"defaultNetworkInterface": "masquerade"}, "cpuModel": "Haswell"}
    bare = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
    answer = libvirt.default(vm(bare), kubevirt={"spec": {"configuration": configuration}})
    assert inner(answer.object)["domain"]["cpu"]["model"] == "Haswell"
    assert "masquerade" in inner(answer.object)["domain"]["devices"]["interfaces"][0]
    assert libvirt.default(vm(bare), kubevirt=["a list"]).problems == {"kubevirt": "must be an object"}


def test_a_document_without_envelope_gets_a_document_back(libvirt: Libvirt) -> None:
    import json

    document = vm(spec(disk(), nic()))
    assert libvirt.raw(json.dumps(document).encode()).content == libvirt.default(document).object


def test_a_lone_surrogate_is_rejected_by_its_path(libvirt: Libvirt) -> None:
    document = vm(spec(disk(), nic(future="\ud800")), name="\udfff")
    problems = libvirt.default(document).problems
    assert set(problems) == {"metadata.name", "spec.template.spec.domain.devices.interfaces[0].future"}
    old = vm(spec(disk(), nic()), annotations={"a": "\ud800"})
    assert set(libvirt.default(vm(spec()), oldObject=old).problems) == {
        "oldObject.spec.template.metadata.annotations.a"
    }


@pytest.mark.parametrize("offered", ["q35", [], {}, {"everywhere": [1], "somewhere": []}, {"everywhere": []}])
def test_malformed_machine_types_are_a_problem(libvirt: Libvirt, offered: Any) -> None:
    answer = libvirt.default(vm(spec(disk(), nic())), offered=offered)
    assert answer.status == 400
    assert list(answer.problems) == ["offered"]
