"""What `at` finds in documents of any shape."""

from typing import Any

import pytest

from poolhouse.api.apimachinery.unstructured import at

DOCUMENT = {"disks": [{"name": "root"}, None], "empty": {}, "text": "abc", "null": None, "zero": 0}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param((), DOCUMENT, id="the document itself"),
        pytest.param(("disks", 0, "name"), "root", id="a value of an item"),
        pytest.param(("disks", -2, "name"), "root", id="an item from the end"),
        pytest.param(("disks", 2), None, id="after the last item"),
        pytest.param(("disks", -3), None, id="before the first item"),
        pytest.param(("disks", 1, "name"), None, id="below null in a list"),
        pytest.param(("disks", "name"), None, id="a key of a list"),
        pytest.param((0,), None, id="an index of an object"),
        pytest.param(("text", 0), None, id="a character is no item"),
        pytest.param(("null", "x"), None, id="below null"),
        pytest.param(("empty", "x", "y"), None, id="below an absent value"),
        pytest.param(("zero",), 0, id="a value that is false"),
    ],
)
def test_a_value_is_found_or_absent(path: tuple[str | int, ...], value: Any) -> None:
    assert at(DOCUMENT, *path) == value
