"""The drawings of the documentation are SVG, and show what they should."""

from __future__ import annotations

from types import ModuleType
from xml.etree import ElementTree

import pytest

from poolhouse.cli.main import COMMANDS
from poolhouse.generate import architecture, recording, warm_states


@pytest.mark.parametrize("module", [architecture, recording, warm_states], ids=lambda module: module.DRAWING)
def test_drawings_need_nothing_from_elsewhere(module: ModuleType) -> None:
    text = module.drawing()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("http") == 1, "only the namespace"


def test_the_architecture_has_every_service() -> None:
    services = {name for name, entry in COMMANDS.items() if entry.kind == "service"}
    assert {box.title.lower() for box in architecture.BOXES if box.ours} == services


def test_the_recording_shows_every_line_of_the_page() -> None:
    blocks = recording.BLOCK.findall(recording.PAGE.read_text())
    words = "".join(blocks).replace("$ ", "").split()
    drawn = ElementTree.fromstring(recording.drawing())
    shown = "\n".join("".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert shown.replace("$ ", "").split()[1:] == words, "the first word is the title"


def test_commands_appear_after_the_output_of_the_command_before() -> None:
    rows = list(recording._rows(["$ one", "1", "$ two"]))
    assert ["animation-delay:0.00s" in rows[0], "animation-delay:0.56s" in rows[1]] == [True, True]
    assert "animation-delay:2.06s" in rows[2]
