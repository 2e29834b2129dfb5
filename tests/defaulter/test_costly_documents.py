"""Which documents have the shape of one that has cost a worker."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from defaulter.costly_documents import MAX_DOCUMENTS, REMEMBERED_SECONDS, CostlyDocuments, heaviest_path
from tests.defaulter.builders import disk, nic, spec, vm

Json = dict[str, Any]
NOW = 100.0
COSTLY = vm(spec(disk(), nic(), domain={"cpu": {"maxSockets": 4096, "features": [{"name": "vmx"}]}}))


def body(document: Json, **envelope: Any) -> bytes:
    return json.dumps({"kind": "DefaultingRequest", "object": document, **envelope}).encode()


def changed(value: Any, *path: str | int) -> Json:
    document = copy.deepcopy(COSTLY)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


INNER = ("spec", "template", "spec")
DISK = (*INNER, "domain", "devices", "disks", 0)


@pytest.mark.parametrize(
    ("document", "same"),
    [
        pytest.param(COSTLY, True, id="itself"),
        pytest.param(changed("other", "metadata", "name"), True, id="another name"),
        pytest.param(changed("disc", *DISK, "name"), True, id="another name of a disk"),
        pytest.param(changed("x1", *DISK, "serial"), False, id="a serial more"),
        pytest.param(changed({"a": "b"}, "metadata", "labels"), True, id="other labels"),
        pytest.param(changed("sata", *DISK, "disk", "bus"), False, id="another bus"),
        pytest.param(changed(2, *INNER, "domain", "cpu", "maxSockets"), False, id="another number"),
        pytest.param(changed([], *INNER, "domain", "devices", "interfaces"), False, id="a device less"),
        pytest.param(changed([{"name": "svm"}], *INNER, "domain", "cpu", "features"), False, id="another CPU feature"),
        pytest.param(
            changed({"annotations": {"poolhouse.dev/hardware": "x"}}, "spec", "template", "metadata"),
            False,
            id="with a hardware record",
        ),
    ],
)
def test_shapes(document: Json, same: bool) -> None:
    costly = CostlyDocuments()
    costly.remember(body(COSTLY), NOW, certain=True)
    assert (costly.find(body(document, seed="other"), NOW) is not None) is same


def test_the_path_is_the_largest_number_or_list() -> None:
    assert heaviest_path(COSTLY) == "spec.template.spec.domain.cpu.maxSockets"
    assert heaviest_path(vm(spec(*(disk(f"d{n}") for n in range(200))))).endswith(("disks", "volumes"))
    assert heaviest_path({}) == ""


def test_an_uncertain_cause_counts_from_the_second_time_on() -> None:
    costly = CostlyDocuments()
    costly.remember(body(COSTLY), NOW, certain=False)
    assert costly.find(body(COSTLY), NOW) is None
    costly.remember(body(COSTLY), NOW, certain=False)
    assert costly.find(body(COSTLY), NOW) is not None


def test_a_shape_is_forgotten_after_a_time() -> None:
    costly = CostlyDocuments()
    costly.remember(body(COSTLY), NOW, certain=True)
    assert costly.find(body(COSTLY), NOW + REMEMBERED_SECONDS - 1) is not None
    assert costly.find(body(COSTLY), NOW + REMEMBERED_SECONDS) is None


def test_the_memory_is_bounded() -> None:
    costly = CostlyDocuments()
    costly.remember(body(COSTLY), NOW, certain=True)
    for number in range(MAX_DOCUMENTS):
        document = changed(number, *INNER, "domain", "cpu", "maxSockets")
        costly.remember(body(document), NOW, certain=True)
    assert costly.find(body(COSTLY), NOW) is None, "the oldest"
    assert costly.find(body(document), NOW) is not None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000, b"{}"])
def test_a_body_that_is_no_request_is_harmless(content: bytes) -> None:
    costly = CostlyDocuments()
    costly.remember(body(COSTLY), NOW, certain=True)
    costly.remember(content, NOW, certain=True)
    assert costly.find(body(COSTLY), NOW) is not None
