"""The readmes of the distributions link the documentation and the changes by paths that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "project", [ROOT, ROOT / "client", ROOT / "agent"], ids=["poolhouse", "poolhouse-client", "poolhouse-agent"]
)
def test_the_readme_of_a_distribution_links_files_that_exist(project: Path) -> None:
    readme = project / tomllib.loads((project / "pyproject.toml").read_text())["project"]["readme"]
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", readme.read_text())
    linked = [(project / link).resolve() for link in links]
    assert [path for path in linked if not path.exists()] == []
    assert {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"} <= set(linked)
    assert any(path.is_relative_to(ROOT / "docs") for path in linked)
