"""Control characters in texts for terminals."""

from __future__ import annotations

import re

import pytest

from poolhouse.service.terminal import Styled, escaped, has_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("web is Ready", "web is Ready", id="plain"),
        pytest.param("größer\u00a0→ 東京 🙂", "größer\u00a0→ 東京 🙂", id="other scripts, a space that does not break"),
        pytest.param("👩\u200d💻 क्\u200cष", "👩\u200d💻 क्\u200cष", id="joiners"),
        pytest.param("a\n\tb", "a\n\tb", id="lines and tabs"),
        pytest.param("\x1b[31mred\x1b[0m", "^[[31mred^[[0m", id="colours"),
        pytest.param("\x1b]0;title\x07", "^[]0;title\\x07", id="the title of the window"),
        pytest.param("\x1b]52;c;cm0=\x1b\\", "^[]52;c;cm0=^[\\", id="the clipboard"),
        pytest.param("\x1b]8;;https://a.example\x1b\\b", "^[]8;;https://a.example^[\\b", id="a link"),
        pytest.param("\x1bP+q544e\x1b\\", "^[P+q544e^[\\", id="a question to the terminal"),
        pytest.param("bad\rgood", "bad\\rgood", id="the line is written again"),
        pytest.param("bad\b\b\bgood", "bad\\x08\\x08\\x08good", id="backspaces"),
        pytest.param("\x00\x0b\x0c\x0e\x7f", "\\x00\\x0b\\x0c\\x0e\\x7f", id="other controls"),
        pytest.param("\x9b31m\x9d0;x\x9c\x85", "\\x9b31m\\x9d0;x\\x9c\\x85", id="controls of eight bits"),
        pytest.param("a\u202eb\u2066c\u200f\u061c", "a\\u202eb\\u2066c\\u200f\\u061c", id="direction of text"),
        pytest.param("a\u2028b\u2029", "a\\u2028b\\u2029", id="other ends of lines"),
        pytest.param("a\u200bb\ufeff\u00ad\U000e0041", "a\\u200bb\\ufeff\\xad\\U000e0041", id="invisible characters"),
        pytest.param("\ud800", "\\ud800", id="half a character"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert has_controls(text) is (text != shown)
    assert not has_controls(escaped(text))
    assert escaped(escaped(text)) == shown


def test_no_character_below_256_moves_the_cursor_except_in_lines_and_tabs() -> None:
    text = escaped("".join(map(chr, range(256))))
    assert re.findall("[\x00-\x1f\x7f-\x9f]", text) == ["\t", "\n"]


def test_a_cell_of_a_table_is_one_line() -> None:
    assert escaped("a\n\tb\x1b", one_line=True) == "a\\n\\tb^["


def test_our_own_colours_stay() -> None:
    assert escaped(Styled("\x1b[31mbad\x1b[0m")) == "\x1b[31mbad\x1b[0m"
