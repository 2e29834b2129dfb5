"""Values of another JSON type than in KubeVirt's schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from poolhouse.api.kubevirt.fields import _KUBERNETES_TYPES, _TYPES, VM_SPEC, VMI_SPEC, Field, declared_fields
from poolhouse.api.kubevirt.wrong_types import wrong_types

OWNERS = sorted({*_TYPES, *_KUBERNETES_TYPES})
VALUES: dict[str, Any] = {"string": "AAA", "number": 7, "boolean": True, "array": [], "object": {}, "fraction": 1.5}
GOOD = {
    "string": {"string"},
    "boolean": {"boolean"},
    "integer": {"number"},
    "count": {"number"},
    "port": {"string", "number"},
    "object": {"object"},
}


def accepted(field: Field) -> set[str]:
    """Names in VALUES that a field accepts."""
    if field.is_list:
        return {"array"}
    return {"number", "fraction"} if field.type == "Quantity" else GOOD[field.value]


def test_each_field_of_each_type_accepts_its_own_type_only() -> None:
    checked = 0
    for owner in OWNERS:
        for name, field in declared_fields(owner).items():
            for kind, value in VALUES.items():
                found = [each.path for each in wrong_types({name: value}, owner)]
                assert found == ([] if kind in accepted(field) else [(name,)]), (owner, name, kind)
                checked += 1
    assert checked > 2000


def test_each_item_of_a_list_is_checked_and_null_is_no_item() -> None:
    for owner in OWNERS:
        for name, field in declared_fields(owner).items():
            for kind, value in (*VALUES.items(), ("null", None)) if field.is_list else ():
                found = [each.path for each in wrong_types({name: [value]}, owner)]
                assert found == ([] if kind in GOOD[field.value] else [(name, 0)]), (owner, name, kind)


def test_each_value_of_a_map_is_checked() -> None:
    maps = [(o, n, f.type) for o in OWNERS for n, f in declared_fields(o).items() if f.type in ("Map", "Quantities")]
    assert len(maps) >= 8
    for owner, name, kind in maps:
        bad: tuple[Any, ...] = (1, True, [], {}) if kind == "Map" else ("AAA", "1 Gi", "", True, [], {})
        for value in bad:
            assert [each.path for each in wrong_types({name: {"k": value}}, owner)] == [(name, "k")], (owner, name)
        assert not list(wrong_types({name: {"k": None, "x": "1"}}, owner))


def test_null_counts_as_absent() -> None:
    for owner in OWNERS:
        assert not list(wrong_types(dict.fromkeys(declared_fields(owner)), owner)), owner


def full(type_name: str) -> dict[str, Any]:
    """An object with a valid value in every field, and in every field of every inner object."""
    found: dict[str, Any] = {}
    for name, field in declared_fields(type_name).items():
        inner: Any = {"string": "a", "boolean": True, "integer": 1, "count": 1, "port": "http"}.get(field.value, {})
        if field.type == "Quantity":
            inner = "1Gi"
        elif field.type in ("Map", "Quantities"):
            inner = {"k": "1"}
        elif field.type:
            inner = full(field.type)
        found[name] = [inner] if field.is_list else inner
    return found


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def test_every_path_of_a_full_vm_is_reported_with_its_place() -> None:
    document = full(VM_SPEC)
    assert not list(wrong_types(document, VM_SPEC))
    paths = list(leaves(document))
    assert len(paths) > 600
    for *parents, key in paths:
        parent: Any = document
        for step in parents:
            parent = parent[step]
        kept, parent[key] = parent[key], 0.5 if isinstance(parent[key], str) else "?"
        found = [each.path for each in wrong_types(document, VM_SPEC)]
        is_quantity = kept == "1Gi" or parents[-1:] in (["requests"], ["limits"])
        assert found == ([] if is_quantity else [(*parents, key)]), (*parents, key)
        parent[key] = kept


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param("AAA", 'spec in body must be of type object: "string"', id="the spec"),
        pytest.param({"domain": {"cpu": {"cores": "4"}}}, "integer", id="a number in quotes"),
        pytest.param({"domain": {"cpu": {"cores": -1}}}, "spec.domain.cpu.cores in body is out of range: -1", id="-1"),
        pytest.param({"domain": {"cpu": {"cores": 2**40}}}, "out of range", id="more than an unsigned integer has"),
        pytest.param(
            {"domain": {"memory": {"guest": "AAA"}}},
            'spec.domain.memory.guest in body must be a quantity such as 1Gi or 500m: "AAA"',
            id="no quantity",
        ),
        pytest.param(
            {"volumes": [{"name": "a"}, None]}, 'spec.volumes[1] in body must be of type object: "null"', id=""
        ),
    ],
)
def test_messages(spec: Any, message: str) -> None:
    (found,) = wrong_types(spec, VMI_SPEC, ("spec",))
    assert message in found.message
