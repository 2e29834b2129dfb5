"""What is generated from the metrics is what is in the repository, and the dashboard asks for metrics that exist."""

from __future__ import annotations

import json
import re

from monitoring import dashboard, refresh, settings
from monitoring.metrics import MAKERS, measures
from monitoring.reasons import MEANINGS, PARTS, declared, said


def test_what_is_generated_is_fresh() -> None:
    assert refresh.stale() == [], "run python -m monitoring.refresh"


def test_every_metric_says_what_it_is() -> None:
    for service in MAKERS:
        for each in measures(service):
            assert each.name.startswith("kubevirt_poolhouse_")
            assert each.help.endswith("."), each
            assert each.type != "counter" or each.name.endswith("_total")


def test_panels_ask_for_metrics_that_exist() -> None:
    known = {each.name for service in MAKERS for each in measures(service)}
    for expression in dashboard.expressions():
        for name in re.findall(r"kubevirt_poolhouse_\w+", expression):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in known, name


def test_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard.text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_reason_has_its_sentence() -> None:
    reasons = {reason for of in said().values() for reason in of}
    documented = set(MEANINGS).union(*(declared(part) for part in PARTS))
    assert reasons - documented == set(), "can be said, and is not explained"
    assert set(MEANINGS) - reasons == set(), "is explained, and nothing says it"


def test_every_setting_is_listed() -> None:
    assert settings.read() - settings.INTERNAL == set(settings.SETTINGS)
