"""The size of documents as API servers store them."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.go_json import go_json_size


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("abc", '"abc"'),
        ("<a>&", r'"\u003ca\u003e\u0026"'),
        ("\u2028\u2029", r'"\u2028\u2029"'),
        ("ä", '"ä"'),
        ('"\\\n\t', r'"\"\\\n\t"'),
        ("\x01", r'"\u0001"'),
        ([1, True, None, {}], "[1,true,null,{}]"),
    ],
)
def test_the_size_is_that_of_the_encoder_of_go(value: Any, encoded: str) -> None:
    assert go_json_size({"a": value}) == len(f'{{"a":{encoded}}}'.encode())
