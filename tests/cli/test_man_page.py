"""The manual page matches the commands, and roff can read it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cli.main import COMMANDS
from cli.man_page import DIRECTORY, PAGE, generated, reference


def test_the_manual_is_that_of_the_present_commands() -> None:
    found = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert found == generated(), "stale: python -m cli.man_page"


def test_the_page_of_the_documentation_is_that_of_the_present_commands() -> None:
    page = PAGE.read_text()
    assert page == reference(page), "stale: python -m cli.man_page"
    assert "### poolhouse rollout undo\n" in page


def test_every_command_is_in_it() -> None:
    text = generated()["poolhouse.1"]
    shown = [name for name, entry in COMMANDS.items() if not entry.kind.startswith("hidden")]
    assert [name for name in shown if f'.SS "{name.replace("-", chr(92) + "-")} ' not in text] == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff on this machine")
def test_roff_has_nothing_to_complain_of() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z", str(DIRECTORY / "poolhouse.1")],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    assert done.stderr == ""
