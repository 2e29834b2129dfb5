"""`up --apply`."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolhouse.stack.components import StackError
from poolhouse.stack.progress import read_manifests


def test_all_problems_of_manifests_are_reported_before_the_stack_starts(tmp_path: Path) -> None:
    texts = {
        "good.yaml": "{apiVersion: kubevirt.io/v1, kind: VirtualMachinePool, metadata: {name: web}}",
        "prose.yaml": "a: b: c",
        "list.yaml": "[1, 2]",
        "chart.yaml": "apiVersion: v2",
        "map.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}",
        "nameless.yaml": "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {}}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in texts]
    with pytest.raises(StackError) as refused:
        read_manifests([*files, tmp_path / "absent.yaml"])
    for name in [*texts, "absent.yaml"]:
        assert (name in str(refused.value)) == (name != "good.yaml")
    assert "metadata.name of a VirtualMachine is missing" in str(refused.value)
    assert [document["kind"] for document in read_manifests(files[:1])] == ["VirtualMachinePool"]
