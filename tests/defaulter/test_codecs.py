from __future__ import annotations

from typing import Any

import pytest

from defaulter import codecs
from defaulter.codecs import Codec


@pytest.mark.parametrize(
    ("codec", "ours", "theirs"),
    [
        pytest.param(codecs.TEXT, "a<b>&", "a<b>&", id="text is taken as it is"),
        pytest.param(codecs.COUNT, 4, "4", id="counts"),
        pytest.param(codecs.YES_NO, True, "yes", id="yes"),
        pytest.param(codecs.YES_NO, False, "no", id="no"),
        pytest.param(codecs.STATE, {}, "on", id="a given feature is on"),
        pytest.param(codecs.STATE, {"enabled": False}, "off", id="a given feature that is disabled is off"),
        pytest.param(
            codecs.enabled(key="present"), {"present": False}, "off", id="a timer is off if it is not present"
        ),
        pytest.param(codecs.one_of("amd64", renamed={"amd64": "x86_64"}), "amd64", "x86_64", id="renamed words"),
        pytest.param(
            codecs.PCI,
            "0000:0a:1f.7",
            {"type": "pci", "domain": "0x0000", "bus": "0x0a", "slot": "0x1f", "function": "0x7"},
            id="PCI addresses",
        ),
    ],
)
def test_a_codec_encodes_and_decodes(codec: Codec, ours: Any, theirs: Any) -> None:
    assert codec.accepts(ours)
    assert codec.encode(ours) == theirs
    assert codec.decode(theirs) == ours


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.TEXT, "a\x00b"),
        (codecs.TEXT, "a\x1bb"),
        (codecs.TEXT, "\ud800"),
        (codecs.TEXT, 1),
        (codecs.COUNT, -1),
        (codecs.COUNT, True),
        (codecs.COUNT, 2**31),
        (codecs.COUNT, 1.5),
        (codecs.PCI, "0000:00:1.0"),
        (codecs.PCI, "0000:00:01.8"),
        (codecs.PCI, "0000:00:01.0\n"),
        (codecs.MAC, "zz"),
        (codecs.MAC, "52:54:00:00:00"),
        (codecs.UUID, "x"),
        (codecs.BYTES, "1Zi"),
        (codecs.BYTES, "-1"),
        (codecs.STATE, {"enabled": "yes"}),
        (codecs.enabled(key="present"), {"present": "no"}),
        (codecs.one_of("a"), "b"),
    ],
)
def test_a_codec_rejects_invalid_values(codec: Codec, value: Any) -> None:
    assert not codec.accepts(value)
