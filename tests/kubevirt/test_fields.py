"""Unknown fields of a VM, with the nearest name that KubeVirt has."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt.fields import _TYPES, VM_SPEC, VMI_SPEC, UnknownField, fields_of, unknown_fields


@pytest.mark.parametrize(
    ("spec", "path", "nearest"),
    [
        pytest.param({"domain": {"cpuu": {}}}, ("domain", "cpuu"), "cpu", id="in an object"),
        pytest.param(
            {"domain": {"devices": {"disks": [{"name": "a"}, {"disk": {"buss": "sata"}}]}}},
            ("domain", "devices", "disks", 1, "disk", "buss"),
            "bus",
            id="in a list",
        ),
        pytest.param({"domain": {"machine": {"tipe": "q35"}}}, ("domain", "machine", "tipe"), "type", id="a letter"),
        pytest.param({"zzz": 1}, ("zzz",), "", id="like no other"),
        pytest.param({"domain": {3: 1}}, ("domain", "3"), "", id="no text"),
    ],
)
def test_an_unknown_field_has_a_nearest_name(spec: Any, path: tuple[Any, ...], nearest: str) -> None:
    assert list(unknown_fields(spec, VMI_SPEC)) == [UnknownField(path, nearest)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"affinity": {"anything": 1}}, id="types of Kubernetes"),
        pytest.param({"domain": {"resources": {"requests": {"example.com/gpu": 1}}}}, id="a map"),
        pytest.param({"domain": {"devices": {"video": {"type": "vga"}}}}, id="a field of newer releases"),
        pytest.param(
            {"domain": {"features": {"hyperv": {"tlbflush": {"enabled": True, "direct": {}}}}}},
            id="a field whose type has changed",
        ),
        pytest.param({"domain": None, "volumes": "text", "networks": [3]}, id="values of other types"),
        pytest.param([], id="no object"),
    ],
)
def test_known_fields(spec: Any) -> None:
    assert not list(unknown_fields(spec, VMI_SPEC))


def test_each_type_of_the_table_is_listed_and_used() -> None:
    named = {inner for name in _TYPES for inner in fields_of(name).values() if inner}
    assert named <= _TYPES.keys()
    assert _TYPES.keys() - named == {VM_SPEC}
