"""Messages name pages and sections that the documentation has, in one form."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from poolhouse.api.kinds import documentation
from poolhouse.api.kinds.documentation import Page

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {name: value for name, value in vars(documentation).items() if isinstance(value, Page)}
CHECKOUT_PATH = re.compile(r"docs/\S*\.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_documentation_has_the_page_and_its_section(name: str) -> None:
    page = PAGES[name]
    headings = re.findall(r"^(#+) (.*)$", (ROOT / "docs" / page.path).read_text(), re.MULTILINE)
    assert headings[0] == ("#", page.title)
    assert not page.section or ("##", page.section) in headings


def test_a_message_names_a_page_by_its_title() -> None:
    page = Page("Upgrade", "upgrade.md", "Identity seed")
    assert str(page) == '"Identity seed" on the page "Upgrade" of Poolhouse\'s documentation'
    assert str(Page("Emergency", "emergency.md")) == 'the page "Emergency" of Poolhouse\'s documentation'


@pytest.mark.parametrize("folder", ["webhook", "defaulter", "controllers", "poolhouse", "charts/poolhouse/templates"])
def test_no_message_has_a_path_that_only_a_checkout_has(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        if not path.is_relative_to(ROOT / "poolhouse/generate"):
            assert not [text for text in _messages(path) if CHECKOUT_PATH.search(text)], path
    for path in (ROOT / folder).rglob("*.yaml"):
        assert not [line for line in path.read_text().splitlines() if "fail " in line and CHECKOUT_PATH.search(line)]


def _messages(path: Path) -> list[str]:
    """All texts of a module that may have such a path, without its docstrings."""
    text = path.read_text()
    if "docs/" not in text:
        return []
    tree = ast.parse(text)
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    return [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone
    ]
