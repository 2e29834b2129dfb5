from __future__ import annotations

from typing import Any

import pytest

from apimachinery.quantity import to_int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("128Mi", 128 * 1024**2),
        ("1G", 10**9),
        ("1.5Gi", 1610612736),
        ("100m", 1),
        ("1e3", 1000),
        (2, 2),
        ("0.5", 1),
        ("", None),
        ("Gi", None),
        (" 1Gi", None),
        ("1e3Ki", None),
        ("5n", 1),
        (True, None),
        (None, None),
        ("9" * 70, None),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: Any, value: int | None) -> None:
    assert to_int(text) == value
