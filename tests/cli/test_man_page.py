"""The manual page matches the commands, and roff can read it."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess

import pytest

from poolhouse.cli.main import COMMANDS
from poolhouse.cli.man_page import DIRECTORY, PAGE, generated, reference


def test_the_manual_is_that_of_the_present_commands() -> None:
    found = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert found == generated(), "stale: python -m poolhouse.cli.man_page"


def test_the_page_of_the_documentation_is_that_of_the_present_commands() -> None:
    page = PAGE.read_text()
    assert page == reference(page), "stale: python -m poolhouse.cli.man_page"
    assert "### poolhouse rollout undo\n" in page


def test_every_command_is_in_it() -> None:
    text = generated()["poolhouse.1"]
    shown = [name for name, entry in COMMANDS.items() if not entry.kind.startswith("hidden")]
    assert [name for name in shown if f'.SS "{name.replace("-", chr(92) + "-")} ' not in text] == []


CHANGELOG = DIRECTORY.parent.parent.parent / "CHANGELOG.md"


def released(changelog: str, version: str) -> str | None:
    """Returns the date in the version's heading; None if the version is not released."""
    found = re.search(rf"^## \[?{re.escape(version)}\]? - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    return found[1] if found else None


@pytest.mark.parametrize(
    ("changelog", "date"),
    [
        ("## Unreleased\n\n## 0.2.0 - 2027-02-01\n\n## 0.1.0 - 2027-01-02\n", "2027-01-02"),
        ("## [0.1.0] - 2027-01-02\n", "2027-01-02"),
        ("## Unreleased\n", None),
        ("## 0.1.01 - 2027-01-02\n", None),
    ],
)
def test_the_changelog_has_the_dates_of_releases(changelog: str, date: str | None) -> None:
    assert released(changelog, "0.1.0") == date


def test_the_page_has_the_date_of_the_version() -> None:
    found = re.search(r'^\.TH POOLHOUSE 1 "(.*?)" "poolhouse (.*?)" ', generated()["poolhouse.1"], re.MULTILINE)
    date, version = found.groups()
    assert datetime.date.fromisoformat(date).isoformat() == date
    assert released(CHANGELOG.read_text(), version) in (date, None), (
        "write the date of the release to poolhouse/cli/man_page.py"
    )


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
