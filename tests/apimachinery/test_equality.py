"""Which values count as unchanged."""

from typing import Any

import pytest

from poolhouse.api.apimachinery.equality import is_unchanged

DEEP: Any = []
for _ in range(2000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("before", "after", "unchanged"),
    [
        pytest.param({"a": [1, "x", None]}, {"a": [1, "x", None]}, True, id="equal objects"),
        pytest.param({"a": 1}, {"a": True}, False, id="1 is not true"),
        pytest.param({"a": [1]}, {"a": [1.0]}, False, id="1 is not 1.0"),
        pytest.param(0, False, False, id="0 is not false"),
        pytest.param(None, {}, False, id="null is no object"),
        pytest.param("a", "a", True, id="equal strings"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, False, id="another order is not known to be equal"),
        pytest.param([2**70], [2**70], False, id="a number beyond 64 bits is not known to be equal"),
        pytest.param(["\ud800"], ["\ud800"], False, id="half a surrogate pair is not known to be equal"),
        pytest.param(DEEP, [DEEP[0]], False, id="too many levels are not known to be equal"),
    ],
)
def test_what_counts_as_unchanged(before: Any, after: Any, unchanged: bool) -> None:
    assert is_unchanged(before, after) is unchanged
