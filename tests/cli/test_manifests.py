"""How manifests are read, and what is said of those that are not what is wanted."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from cli.manifests import as_list, print_manifests, read_manifests, require_kind
from cli.output import Failed

Json = dict[str, Any]

VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"}}
POLICY = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "b"}}
UPSTREAM = {**POLICY, "apiVersion": "migrations.kubevirt.io/v1alpha1"}


def file(*documents: Any, text: bytes | None = None) -> io.BytesIO:
    content = io.BytesIO(yaml.safe_dump_all(documents).encode() if text is None else text)
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
        pytest.param(file(text=b"{"), "new.yaml: no YAML: ", id="no YAML"),
        pytest.param(file(text=b"\xff\xfe\x00"), "new.yaml: no YAML: ", id="no text"),
        pytest.param(file(text=b"---\n# nothing\n"), "new.yaml: there is no object in it", id="empty"),
        pytest.param(
            file(VM, 3, [1]),
            "new.yaml, document 2: is no object: 3\nnew.yaml, document 3: is no object: [1]",
            id="no objects",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_its_file(source: io.BytesIO, said: str) -> None:
    with pytest.raises(Failed) as refused:
        read_manifests(source)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(
            file(VM),
            "new.yaml: is a VirtualMachine of kubevirt.io/v1; a MigrationPolicy of kubevirt.io/v1alpha1 is wanted",
            id="another kind",
        ),
        pytest.param(
            file(POLICY, UPSTREAM),
            "new.yaml, document 2: is a MigrationPolicy of migrations.kubevirt.io/v1alpha1; a MigrationPolicy of"
            " kubevirt.io/v1alpha1 is wanted",
            id="KubeVirt's own kind of that name",
        ),
        pytest.param(
            file({"spec": {}}),
            "new.yaml: is an object without a kind; a MigrationPolicy of kubevirt.io/v1alpha1 is wanted",
            id="no kind",
        ),
    ],
)
def test_of_another_kind_a_line_says_so(source: io.BytesIO, said: str) -> None:
    with pytest.raises(Failed) as refused:
        require_kind(read_manifests(source), "kubevirt.io/v1alpha1", "MigrationPolicy")
    assert str(refused.value) == said


@pytest.mark.parametrize(("documents", "printed"), [([VM], VM), ([VM, POLICY], as_list([VM, POLICY]))])
def test_what_is_printed_in_json_is_one_object(
    documents: list[Json], printed: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    print_manifests("json", documents)
    assert json.loads(capsys.readouterr().out) == printed


def test_what_is_printed_in_yaml_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    print_manifests("yaml", [VM, POLICY])
    assert [each.document for each in read_manifests(file(text=capsys.readouterr().out.encode()))] == [VM, POLICY]
