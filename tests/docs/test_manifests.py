"""Manifests in the documentation and in examples/ are valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolhouse.api.kinds import KINDS, by_gvk

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def manifests() -> Iterator[Any]:
    for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]:
        for number, match in enumerate(BLOCK.finditer(path.read_text())):
            for document in yaml.safe_load_all(match[1]):
                if isinstance(document, dict) and "spec" not in document:
                    continue  # a fragment of a manifest
                yield pytest.param(document, id=f"{path.relative_to(ROOT)}-{number}")
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            yield pytest.param(document, id=f"{path.name}-{number}")


@pytest.mark.parametrize("document", list(manifests()))
def test_manifest_is_valid(document: Any) -> None:
    assert isinstance(document, dict), "the document is empty"
    kind = by_gvk(str(document.get("apiVersion")), str(document.get("kind")))
    if kind is None:
        named = {each.kind for each in KINDS if str(document.get("apiVersion")).startswith(f"{each.group}/")}
        assert document.get("kind") not in named, "this version of the kind does not exist"
        return
    assert kind.problems(kind.normalize(document)) == []
