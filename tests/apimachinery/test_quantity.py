from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.quantity import for_people, to_int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("128Mi", 128 * 1024**2),
        ("1Ki", 1024),
        ("1k", 1000),
        ("1G", 10**9),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1.5Gi", 1610612736),
        ("1.5e3", 1500),
        ("100m", 1),
        ("5n", 1),
        ("5u", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1e-3", 1),
        ("1.", 1),
        (".5", 1),
        ("+1", 1),
        ("-1", -1),
        ("-0.5", -1),
        ("-5n", -1),
        ("0", 0),
        ("0.0", 0),
        (2, 2),
        ("0.5", 1),
        ("9223372036854775807", 2**63 - 1),
        ("1.0000000000000000000000000000001Ki", 1025),
        (" 1Gi", 1024**3),
        ("1Gi ", 1024**3),
        ("\u00a0 2 \u3000", 2),
        (1.5, 2),
        (-0.5, -1),
        (1e3, 1000),
        (1e22, 10**22),
        (1.5e-7, 1),
    ],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: Any, value: int) -> None:
    assert to_int(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ".",
            "-",
            "Gi",
            " ",
            "1Gi\n",
            "\t1Gi",
            "1 Gi",
            "1e3Ki",
            "1mi",
            "1K",
            "1ki",
            "1e",
            "1ei",
            "1Kib",
            "0x10",
        ),
        *("1,5", "1_000", "--1", "1.1.1", "1i", "\u0661", True, None, float("nan"), float("inf"), ["1"], "9" * 70),
    ],
)
def test_an_invalid_quantity_has_no_value(text: Any) -> None:
    assert to_int(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (142270792, "135.7Mi"),
        ("142270792", "135.7Mi"),
        ("1073741824", "1Gi"),
        ("1099511627776", "1Ti"),
        ("512", "512"),
        ("1Gi", "1Gi"),
        ("1.5G", "1.5G"),
        ("0", "0"),
        (None, ""),
        ("damaged", "damaged"),
    ],
)
def test_a_size_for_people(value: Any, text: str) -> None:
    assert for_people(value) == text
