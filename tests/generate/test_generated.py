"""Generated files are up to date, and what they list is complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from poolhouse.generate import dashboard, reasons, refresh, settings
from poolhouse.generate.metrics import MAKERS, measures
from poolhouse.service.settings import reference


def test_generated_files_are_up_to_date() -> None:
    assert refresh.stale() == [], "run make generate"


def test_every_metric_is_documented() -> None:
    for service in MAKERS:
        for each in measures(service):
            assert each.name.startswith("kubevirt_poolhouse_")
            assert each.help.endswith("."), each
            assert each.type != "counter" or each.name.endswith("_total")


def test_panels_use_existing_metrics() -> None:
    known = {each.name for service in MAKERS for each in measures(service)}
    for expression in dashboard.expressions():
        for name in re.findall(r"kubevirt_poolhouse_\w+", expression):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in known, name


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard.text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_reason_is_documented_once() -> None:
    for module in reasons.MODULES.values():
        found = reasons.declared(module)
        assert all(each.doc.endswith(".") for each in found)
        assert len({str(each) for each in found}) == len(found)


@pytest.mark.parametrize("path", sorted(Path("controllers").rglob("reasons.py")), ids=str)
def test_every_module_of_reasons_is_on_the_page(path: Path) -> None:
    listed = {module.__name__ for module in reasons.MODULES.values()}
    assert ".".join(path.with_suffix("").parts) in listed


def test_the_chart_sets_only_declared_settings() -> None:
    declared = {each.variable for model in settings.MODELS.values() for each in reference(model)}
    templates = "".join(each.read_text() for each in Path("charts/poolhouse/templates").iterdir())
    assert set(re.findall(r"POOLHOUSE_[A-Z0-9_]+", templates)) - declared == set()
