"""Output that changes, in a terminal and elsewhere."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from select import select
from typing import TextIO

import click
import pytest

from poolhouse.cli.live import LiveLines, StatusLine, fitted
from poolhouse.cli.updates import finished_vms
from poolhouse.service.progress_bar import ProgressBar, time_left
from tests.waiting import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        pytest.param(None, "", id="no estimate"),
        pytest.param(0.2, "almost done", id="done"),
        pytest.param(7.4, "about 7 s left", id="seconds"),
        pytest.param(43, "about 45 s left", id="rounded to 5 s"),
        pytest.param(100, "about 1 min 30 s left", id="rounded to half a minute"),
        pytest.param(1750, "about 30 min left", id="rounded to 5 minutes"),
        pytest.param(7300, "about 2 h left", id="hours"),
    ],
)
def test_an_estimate_is_rounded(seconds: float | None, said: str) -> None:
    assert time_left(seconds) == said


def test_lines_are_cut_to_the_height_of_the_terminal() -> None:
    assert fitted(["a", "b"], 2) == ["a", "b"]
    assert fitted(["a", "b", "c"], 2) == ["a", "... and 2 more lines; `-o name` or a filter shows them"]


def test_without_a_terminal_lines_are_printed_after_a_change_only(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveLines() as view:
        for lines, key in ((["web 1s"], 1), (["web 2s"], 1), (["web ready"], 2)):
            view.show(lines, key)
    assert capsys.readouterr().out == "web 1s\n\nweb ready\n"


def test_without_a_terminal_a_status_line_is_printed_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with StatusLine() as line:
        for text in ("position 2", "position 2", "position 1\x1b]0;title\x07"):
            line.show(text)
    assert capsys.readouterr().err == "position 2\nposition 1^[]0;title\\x07\n"


def test_a_terminal_shows_the_status_in_one_line(terminal: tuple[int, TextIO]) -> None:
    screen, output = terminal
    with redirect_stderr(output), StatusLine() as line:
        line.show("position 2")
        line.show("position 1")
    shown = shown_on(screen, "position 1")
    assert "\x1b[2K" in shown.partition("position 2")[2]  # the line is erased before the next one


def test_without_a_terminal_a_bar_prints_its_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("web", 3) as bar:
        bar.update(1, 3)
        bar.echo("1 of 3")
    assert capsys.readouterr().out == "1 of 3\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """The screen of a terminal as a file descriptor, and the output that writes on it."""
    screen, output = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with io.TextIOWrapper(os.fdopen(output, "wb", 0), write_through=True) as file:
        yield screen, file
    os.close(screen)


def shown_on(screen: int, *texts: str) -> str:
    """What the screen shows until it has shown all the texts. One read may return only a part."""
    found = ""
    while not all(text in found for text in texts) and select([screen], [], [], PATIENCE_SECONDS)[0]:
        found += os.read(screen, 65536).decode()
    return found


def test_a_terminal_shows_a_bar_with_an_estimate_and_lines_above(terminal: tuple[int, TextIO]) -> None:
    screen, output = terminal
    with redirect_stdout(output), ProgressBar("web", 3) as bar:
        bar.update(1, 3, 42)
        bar.echo("web: 1 of 3 VMs has the template")
    texts = ("1/3", "about 40 s left", "web: 1 of 3 VMs has the template\r\n")
    shown = shown_on(screen, *texts)
    assert [text for text in texts if text not in shown] == []


def test_a_terminal_shows_lines_in_place(terminal: tuple[int, TextIO]) -> None:
    screen, output = terminal
    with redirect_stdout(output), LiveLines() as view:
        view.show([click.style("web  Degraded", fg="red")], 1)
        view.show(["web  Healthy"], 2)
    shown = shown_on(screen, "web  Healthy")
    assert "web  Degraded" in shown
    assert "\x1b[2K" in shown.partition("web  Degraded")[2]  # the line is erased before the next one
    assert "web  Healthy" in shown


def test_lines_do_not_control_the_terminal(terminal: tuple[int, TextIO]) -> None:
    screen, output = terminal
    with redirect_stdout(output), LiveLines() as view:
        view.show(["web  \x1b]0;title\x07\u202e", "end of lines"], 1)
    with redirect_stdout(output), ProgressBar("web", 3) as bar:
        bar.echo("bar  \x1b]0;title\x07\u202e end of bar")
    shown = shown_on(screen, "end of bar")
    assert "web  ^[]0;title\\x07\\u202e" in shown
    assert "bar  ^[]0;title\\x07\\u202e end of bar" in shown
    assert "\x1b]0" not in shown


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        pytest.param({"observedGeneration": 1, "updatedAvailableReplicas": 3}, (0, 3), id="not observed"),
        pytest.param({"observedGeneration": 2, "updatedAvailableReplicas": 2}, (2, 3), id="two of three"),
        pytest.param({"observedGeneration": 2, "desiredReplicas": 2}, (0, 2), id="the namespace has a limit"),
        pytest.param({}, (0, 3), id="no status yet"),
    ],
)
def test_the_bar_counts_vms_that_are_updated_and_available(status: dict[str, int], finished: tuple[int, int]) -> None:
    assert finished_vms({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status}) == finished
