"""The CRDs of all kinds: complete descriptions, and nothing that the API server would reject."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from poolhouse.api.kinds import KINDS, Kind
from poolhouse.api.kinds.kubevirt import KUBEVIRT_KINDS
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.manifests.crd import crd

ALL = tuple(dict.fromkeys((*KINDS, *KUBEVIRT_KINDS, REPLICA_SET)))
each = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.crd_name)


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
        yield from fields(field.get("items", {}), f"{path}.{name}[]")
        if isinstance(field.get("additionalProperties"), dict):
            yield from fields(field["additionalProperties"], f"{path}.{name}.*")


def versions(kind: Kind) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = crd(kind)["spec"]["versions"]
    return found


@each
def test_every_field_has_a_description(kind: Kind) -> None:
    for version in versions(kind):
        schema = version["schema"]["openAPIV3Schema"]
        bare = [path for path, field in fields(schema) if not field.get("description") and path != ".metadata"]
        assert bare == []


@each
def test_every_field_has_a_type_and_no_reference(kind: Kind) -> None:
    for version in versions(kind):
        for path, field in fields(version["schema"]["openAPIV3Schema"]):
            untyped = field.get("x-kubernetes-int-or-string") or "is not a field here" in field.get("description", "")
            assert "type" in field or untyped, path
            assert not field.keys() & {"$ref", "title", "x-rules", "x-hints", "x-expected", "x-model", "const"}, path


@each
def test_defaults_are_scalars_in_specs(kind: Kind) -> None:
    for version in versions(kind):
        for path, field in fields(version["schema"]["openAPIV3Schema"]):
            if "default" in field and path != ".status":
                assert path.startswith(".spec"), path
                assert isinstance(field["default"], str | int | bool), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.crd_name)
def test_an_object_without_a_status_is_not_current_for_kstatus(kind: Kind) -> None:
    for version in versions(kind):
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        assert status["default"] == {"observedGeneration": status["properties"]["observedGeneration"]["minimum"]}
        assert status["default"]["observedGeneration"] < 0


@each
def test_columns_show_fields_that_exist(kind: Kind) -> None:
    known = dict(fields(versions(kind)[0]["schema"]["openAPIV3Schema"]))
    for column in kind.columns:
        path = column.path.split("[")[0]
        assert path.startswith(".metadata") or path in known, column


def test_names_are_unique_in_a_group() -> None:
    taken: dict[tuple[str, str], str] = {}
    for kind in ALL:
        for name in (kind.plural, kind.singular, *kind.short_names):
            owner = taken.setdefault((kind.group, name), kind.kind)
            assert owner == kind.kind, f"{name} is {owner}'s"


def test_exactly_one_version_is_stored() -> None:
    for kind in ALL:
        assert [version["storage"] for version in versions(kind)].count(True) == 1
