from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from poolhouse.service.logs import JsonFormatter, TextFormatter, printable


def record(message: str, *args: Any, error: bool = False, **facts: Any) -> logging.LogRecord:
    info = None
    if error:
        try:
            raise RuntimeError("line one\nline two")
        except RuntimeError:
            info = sys.exc_info()
    made = logging.LogRecord("runtime.test", logging.INFO, "f", 1, message, args, info)
    made.__dict__.update(facts)
    return made


def test_a_json_line_has_fields_beside_the_message() -> None:
    line = json.loads(JsonFormatter("controllers").format(record("grew by %d", 3, pool="n/p", error=True)))
    assert line["message"] == "grew by 3"
    assert (line["service"], line["level"], line["logger"], line["pool"]) == (
        "controllers",
        "info",
        "runtime.test",
        "n/p",
    )
    assert "RuntimeError: line one" in line["exception"]


def test_an_extra_field_does_not_replace_a_standard_field() -> None:
    assert json.loads(JsonFormatter("s").format(record("m", level="critical")))["level"] == "info"


@pytest.mark.parametrize("name", ["a\nINFO forged", "a\r\nb", "\x1b[2Jb", "a\u202eb", "a\u2028b", "a\x00b", "\x9b2J"])
def test_a_name_with_control_characters_stays_in_its_line(name: str) -> None:
    for formatter in (TextFormatter("s"), JsonFormatter("s")):
        text = formatter.format(record("%s is here", name, vm=name))
        assert text.isprintable(), repr(text)
        assert len(text.splitlines()) == 1


def test_a_traceback_keeps_its_lines() -> None:
    lines = TextFormatter("s").format(record("failed", error=True)).splitlines()
    assert lines[0].endswith("failed")
    assert all(line.startswith("    ") for line in lines[1:])


def test_printable_text_is_unchanged() -> None:
    assert printable("Größe 3 GiB, «ok»") == "Größe 3 GiB, «ok»"
