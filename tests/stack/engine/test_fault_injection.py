"""The reference page of simulated faults has each setting."""

import re
from pathlib import Path

from poolhouse.stack.engine.fault_injection import FAULTS, SETTINGS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "simulation.md"


def test_the_reference_page_has_each_setting() -> None:
    table = PAGE.read_text().partition("| Key |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", table, re.MULTILINE))
    assert sorted(rows) == sorted(SETTINGS)
    assert re.findall(r"`([^`]+)`", rows["fail"]) == list(FAULTS)
