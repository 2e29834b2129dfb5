"""Singular and plural in sentences."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from poolhouse.api.apimachinery.counting import count_noun, count_of, count_verb


@pytest.mark.parametrize(
    ("number", "verbs", "said"),
    [
        (1, (), "1 VM"),
        (0, (), "0 VMs"),
        (1, ("fails", "fail"), "1 VM fails"),
        (2, ("fails", "fail"), "2 VMs fail"),
    ],
)
def test_a_number_and_its_noun(number: int, verbs: tuple[str, ...], said: str) -> None:
    assert count_noun(number, "VM", *verbs) == said


@pytest.mark.parametrize(
    ("number", "total", "verbs", "said"),
    [
        (1, 1, (), "1 of 1 VM"),
        (0, 0, (), "0 of 0 VMs"),
        (0, 1, ("is", "are"), "0 of 1 VM is"),
        (1, 3, ("is", "are"), "1 of 3 VMs is"),
        (2, 3, ("is", "are"), "2 of 3 VMs are"),
    ],
)
def test_a_number_of_a_whole(number: int, total: int, verbs: tuple[str, ...], said: str) -> None:
    assert count_of(number, total, "VM", *verbs) == said


def test_a_number_and_its_verb() -> None:
    assert (count_verb(1, "is", "are"), count_verb(2, "is", "are")) == ("1 is", "2 are")


ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("poolhouse", "controllers", "webhook", "defaulter", "client")

PERHAPS = re.compile(r"""\}(["'][\s\\]*[fr]*["'])? VM""")
"""what a source with such an f-string has, also if it is written as two strings: few files have to be parsed"""


def _numbers_before_plurals() -> Iterator[str]:
    """f-strings with a value before ` VMs` or ` VMIs`, which also say `1 VMs`."""
    for path in (found for folder in PRODUCT for found in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if PERHAPS.search(text) else ():
            for before, after in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
                said = after.value if isinstance(after, ast.Constant) and isinstance(before, ast.FormattedValue) else ""
                if str(said).startswith((" VMs", " VMIs")):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_no_message_puts_a_number_before_a_plural() -> None:
    assert [*_numbers_before_plurals()] == []
