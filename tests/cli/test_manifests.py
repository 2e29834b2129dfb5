"""Manifests that are read, and errors for others."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.cli.manifests import as_list, print_manifests, read_manifests, require_kind
from poolhouse.cli.output import Failed

VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"}}
POLICY = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "b"}}
UPSTREAM = {**POLICY, "apiVersion": "migrations.kubevirt.io/v1alpha1"}


def file(*documents: Any, text: bytes | None = None) -> io.BytesIO:
    dumped = "---\n".join(yaml.safe_dump(each) for each in documents)
    content = io.BytesIO(dumped.encode() if text is None else text)
    content.name = "new.yaml"
    return content


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param(file(VM), [(VM, "new.yaml")], id="one"),
        pytest.param(
            file(VM, None, POLICY),
            [(VM, "new.yaml, document 1"), (POLICY, "new.yaml, document 2")],
            id="several, and an empty one between them",
        ),
        pytest.param(
            file(as_list([VM, POLICY])),
            [(VM, "new.yaml, document 1"), (POLICY, "new.yaml, document 2")],
            id="a list",
        ),
    ],
)
def test_the_objects_of_a_file(source: io.BytesIO, found: list[tuple[Json, str]]) -> None:
    assert [(each.document, each.place) for each in read_manifests(source)] == found


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(file(text=b"{"), "new.yaml: invalid YAML: ", id="no YAML"),
        pytest.param(file(text=b"\xff\xfe\x00"), "new.yaml: invalid YAML: ", id="no text"),
        pytest.param(file(text=b"---\n# nothing\n"), "new.yaml: contains no object", id="empty"),
        pytest.param(
            file(VM, 3, [1]),
            "new.yaml, document 2: must be an object, not 3\nnew.yaml, document 3: must be an object, not [1]",
            id="no objects",
        ),
    ],
)
def test_invalid_manifests_are_reported_with_their_file(source: io.BytesIO, said: str) -> None:
    with pytest.raises(Failed) as refused:
        read_manifests(source)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(
            file(VM),
            "new.yaml: must be a MigrationPolicy of kubevirt.io/v1alpha1, not a VirtualMachine of kubevirt.io/v1",
            id="another kind",
        ),
        pytest.param(
            file(POLICY, UPSTREAM),
            "new.yaml, document 2: must be a MigrationPolicy of kubevirt.io/v1alpha1, not a MigrationPolicy of"
            " migrations.kubevirt.io/v1alpha1",
            id="KubeVirt's own kind of that name",
        ),
        pytest.param(
            file({"spec": {}}),
            "new.yaml: must be a MigrationPolicy of kubevirt.io/v1alpha1, not an object without a kind",
            id="no kind",
        ),
    ],
)
def test_objects_of_another_kind_are_reported(source: io.BytesIO, said: str) -> None:
    with pytest.raises(Failed) as refused:
        require_kind(read_manifests(source), "kubevirt.io/v1alpha1", "MigrationPolicy")
    assert str(refused.value) == said


@pytest.mark.parametrize(("documents", "printed"), [([VM], VM), ([VM, POLICY], as_list([VM, POLICY]))])
def test_json_is_one_object(documents: list[Json], printed: Json, capsys: pytest.CaptureFixture[str]) -> None:
    print_manifests("json", documents)
    assert json.loads(capsys.readouterr().out) == printed


def test_printed_yaml_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    print_manifests("yaml", [VM, POLICY])
    assert [each.document for each in read_manifests(file(text=capsys.readouterr().out.encode()))] == [VM, POLICY]
