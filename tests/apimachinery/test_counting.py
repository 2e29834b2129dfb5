"""Singular and plural in sentences."""

import pytest

from apimachinery.counting import count_noun


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
