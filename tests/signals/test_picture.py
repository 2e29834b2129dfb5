"""The picture of the dashboard, from answers that a test gives."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from signals.dashboard import ROWS, Panel
from signals.picture import Series, Window, ceiling, named, said, svg

WINDOW = Window(0, 100, 10)
PANEL = Panel("Ready & well <now>", "?", (("up", "{{job}}"),))
XML = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(picture).iter(f"{XML}text")]


def test_a_panel_has_its_title_axis_lines_and_names() -> None:
    lines = [Series("a", ((0, 1), (100, 3))), Series("b", ((50, 2),)), Series("without points", ())]
    picture = svg([("Row", [(PANEL, lines)])], WINDOW)
    assert [each for each in texts(picture) if not each[0].isdigit()] == ["Row", "Ready & well <now>", "a", "b"]
    paths = [each.get("d") for each in ElementTree.fromstring(picture).iter(f"{XML}path")]
    assert len(paths) == 2
    assert paths[0] == "M46 123.5L392 58.5", "from a quarter to three quarters of 4, across the whole window"


def test_a_panel_without_an_answer_says_so() -> None:
    assert "No data" in texts(svg([("Row", [(PANEL, [])])], WINDOW))


def test_names_that_do_not_fit_are_counted() -> None:
    lines = [Series(f"line {number}", ((0, 1),)) for number in range(8)]
    assert "line 4 and 3 more" in texts(svg([("Row", [(PANEL, lines)])], WINDOW))


def test_every_panel_of_the_dashboard_is_drawn() -> None:
    shown = texts(svg([(row.title, [(panel, []) for panel in row.panels]) for row in ROWS], WINDOW))
    assert [panel.title for row in ROWS for panel in row.panels if panel.title not in shown] == []


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.4), (1, 1), (3, 4), (8.1, 10), (450, 800), (-1, 1)])
def test_axes_end_with_round_numbers(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0, "s", "0"),
        (0.25, "s", "250 ms"),
        (1.5, "s", "1.5 s"),
        (36000, "s", "10 h"),
        (2**21, "bytes", "2 Mi"),
        (0.5, "reqps", "0.5/s"),
        (12, "short", "12"),
    ],
)
def test_numbers_have_their_unit(value: float, unit: str, words: str) -> None:
    assert said(value, unit) == words


def test_legends_are_filled_in_as_grafana_does() -> None:
    assert named("{{namespace}}/{{ vmpool }} ready {{none}}", {"namespace": "a", "vmpool": "web"}) == "a/web ready "
