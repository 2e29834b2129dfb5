"""The health scripts for Argo CD, run in Lua 5.1 as Argo CD does, on statuses that the controllers write."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from poolhouse.api.kinds import KINDS
from poolhouse.manifests.argocd import health_patch
from tests.controllers.readiness import ROWS, Row

SCRIPTS: dict[str, str] = yaml.safe_load(health_patch())["data"]


def health(document: dict[str, Any]) -> dict[str, str]:
    from lupa import lua51

    group, kind = document["apiVersion"].split("/")[0], document["kind"]
    lua = lua51.LuaRuntime(register_eval=False, attribute_filter=lambda *_: None)
    lua.globals().obj = lua.table_from(document, recursive=True)
    return dict(lua.execute(SCRIPTS[f"resource.customizations.health.{group}_{kind}"]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_health(row: Row) -> None:
    found = health(row.document)
    assert found["status"] == row.health
    assert row.reason in found["message"]


@pytest.mark.parametrize("row", ROWS[:1])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"observedGeneration": -1}}, id="no controller has seen it"),
        pytest.param({"status": {}}, id="no controller has written a status"),
        pytest.param({"metadata": {"name": "web", "generation": 2}}, id="the spec has changed"),
    ],
)
def test_an_object_that_was_not_observed_is_progressing(row: Row, change: dict[str, Any]) -> None:
    assert health(row.document | change)["status"] == "Progressing"


def test_every_kind_has_a_script() -> None:
    assert set(SCRIPTS) == {f"resource.customizations.health.{kind.group}_{kind.kind}" for kind in KINDS}
