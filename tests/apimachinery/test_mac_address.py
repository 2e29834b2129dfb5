"""Notations of MAC addresses that Go's net.ParseMAC accepts."""

from __future__ import annotations

import re

import pytest

from poolhouse.api.apimachinery.mac_address import PATTERN, normalize


@pytest.mark.parametrize("text", ["02:00:00:ab:cd:e1", "02:00:00:AB:CD:E1", "02-00-00-ab-cd-e1", "0200.00AB.cde1"])
def test_each_notation_is_the_same_address(text: str) -> None:
    assert re.fullmatch(PATTERN, text)
    assert normalize(text) == "02:00:00:ab:cd:e1"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("02:00-00:ab:cd:e1", id="two separators"),
        pytest.param("0200.00ab:cde1", id="dots and colons"),
        pytest.param("020000abcde1", id="no separator"),
        pytest.param("02:00:00:ab:cd", id="too short"),
        pytest.param("02:00:00:ab:cd:e1:02:03", id="an EUI-64"),
        pytest.param("2:0:0:ab:cd:e1", id="short bytes"),
        pytest.param("0000:05:00.0", id="a PCI address"),
        pytest.param("", id="nothing"),
    ],
)
def test_other_texts_are_no_mac_address(text: str) -> None:
    assert not re.fullmatch(PATTERN, text)
    assert normalize(text) == text
