"""Malformed VMs and VMIs: virt-api refuses each with the path of the wrong value, and no value makes it fail."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest

from poolhouse.api.apimachinery.problem import format_path
from poolhouse.api.apimachinery.unstructured import replaced
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.stack.engine.admission.server import VMIS, WEBHOOKS, InvalidReview, answer
from tests.fuzz.mutations import at_path, mutate, paths

Json = dict[str, Any]

SETTINGS = ClusterSettings(versions=("v1.9.0",))
VMI_SPEC: Json = {
    "domain": {
        "cpu": {"cores": 2, "features": [{"name": "vmx", "policy": "require"}]},
        "memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}},
        "machine": {"type": "q35"},
        "firmware": {"uuid": "a", "bootloader": {"efi": {"secureBoot": False}}},
        "resources": {"requests": {"cpu": "1", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "devices": {
            "disks": [{"name": "root", "bootOrder": 1, "disk": {"bus": "virtio", "pciAddress": "0000:08:00.0"}}],
            "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
            "inputs": [{"name": "t", "type": "tablet", "bus": "usb"}],
            "sound": {"name": "s", "model": "ich9"},
        },
    },
    "volumes": [{"name": "root", "dataVolume": {"name": "d"}}],
    "networks": [{"name": "default", "pod": {}}],
    "readinessProbe": {"tcpSocket": {"port": 22}},
    "evictionStrategy": "LiveMigrate",
    "nodeSelector": {"a": "b"},
}
VM: Json = {
    "metadata": {"name": "a", "namespace": "default", "labels": {"a": "b"}},
    "spec": {
        "runStrategy": "Always",
        "dataVolumeTemplates": [
            {
                "metadata": {"name": "d"},
                "spec": {"source": {"blank": {}}, "storage": {"accessModes": ["ReadWriteOnce"]}},
            }
        ],
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": VMI_SPEC},
    },
    "status": {},
}
VMI: Json = {"metadata": VM["metadata"], "spec": VMI_SPEC, "status": {"phase": "Running"}}
HARDWARE_WEBHOOKS = [path for path, each in WEBHOOKS.items() if "snapshot" not in path and "restore" not in path]


def valid(path: str) -> Json:
    return copy.deepcopy(VMI if WEBHOOKS[path][2] == VMIS else VM)


def review(path: str, document: Any, old: Any, operation: str) -> Json:
    request = {"uid": "u", "operation": operation, "object": document, "oldObject": old}
    found: Json = answer(path, json.dumps({"request": request}).encode(), SETTINGS, "kubevirt")["response"]
    return found


def wrong_values(value: Any) -> list[Any]:
    found: list[Any] = ["AAA", 7, True, [3], {"a": {}}]
    # A quantity may be a number, and a port a text.
    number = isinstance(value, int) and not isinstance(value, bool)
    return found[3:] if isinstance(value, str) or number else [each for each in found if type(each) is not type(value)]


@pytest.mark.parametrize("path", HARDWARE_WEBHOOKS)
def test_a_wrong_type_at_each_path_is_refused_with_the_path(path: str) -> None:
    document, operations = valid(path), WEBHOOKS[path][3]
    places = [place for place in paths(document) if place[0] in ("spec", "metadata") or place == ("status",)]
    assert len(places) > 60
    for operation in operations:
        old = valid(path) if operation == "UPDATE" else None
        assert review(path, document, old, operation)["allowed"]
        for place in places:
            for wrong in wrong_values(at_path(document, place)):
                found = review(path, replaced(document, wrong, *place), old, operation)
                assert not found["allowed"], (place, wrong)
                fields = [cause["field"] for cause in found["status"]["details"]["causes"]]
                assert (found["status"]["code"], fields) == (422, [format_path(place)]), (place, wrong)


@pytest.mark.parametrize("path", HARDWARE_WEBHOOKS)
def test_null_at_each_path_counts_as_absent(path: str) -> None:
    document, operations = valid(path), WEBHOOKS[path][3]
    for operation in operations:
        old = valid(path) if operation == "UPDATE" else None
        for *parents, key in paths(document):
            if isinstance(key, str) and parents:
                without = copy.deepcopy(document)
                del at_path(without, tuple(parents))[key]
                answers = [
                    review(path, each, old, operation) for each in (replaced(document, None, *parents, key), without)
                ]
                assert answers[0]["allowed"] == answers[1]["allowed"], (parents, key)


@pytest.mark.parametrize("path", WEBHOOKS)
def test_every_document_gets_an_answer(path: str) -> None:
    random, refused = Random(path), 0
    for _ in range(300):
        document = mutate(random, valid(path), [VM, VMI])
        old = mutate(random, valid(path), [VM, VMI]) if random.random() < 0.5 else None
        try:
            found = review(path, document, old, "UPDATE" if old is not None else "CREATE")
        except InvalidReview:
            continue  # no object, or no JSON that an API server sends
        refused += not found["allowed"]
        assert found["allowed"] or 400 <= found["status"]["code"] < 500
    assert refused


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no request"),
        pytest.param(b'{"request": "AAA"}', id="a request that is text"),
        pytest.param(b'{"request": {"operation": "CREATE", "object": {}}}', id="no UID"),
        pytest.param(b'{"request": {"uid": "u", "operation": "CREATE", "object": "AAA"}}', id="an object that is text"),
        pytest.param(
            b'{"request": {"uid": "u", "operation": "UPDATE", "object": {}}}', id="an update without its past"
        ),
        pytest.param(b'{"request": {"uid": "u", "operation": 3, "object": {}}}', id="an operation that is a number"),
        pytest.param(b'{"request":' * 100_000, id="too deep"),
        pytest.param(b"\xff", id="no UTF-8"),
    ],
)
@pytest.mark.parametrize("path", WEBHOOKS)
def test_bodies_that_no_api_server_sends(path: str, body: bytes) -> None:
    with pytest.raises(InvalidReview):
        answer(path, body, SETTINGS, "kubevirt")


def test_the_finalizer_of_a_malformed_vm_can_be_removed() -> None:
    gone = {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": "AAA"}
    for path in HARDWARE_WEBHOOKS:
        if "UPDATE" in WEBHOOKS[path][3]:
            assert review(path, gone, gone, "UPDATE") == {"uid": "u", "allowed": True}
