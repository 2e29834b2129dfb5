"""A new kind costs its names, its module, its controller package and two lines: all rooms read its declaration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent

MODULE = '''
from typing import Annotated

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds.kind import AGE, Column, Kind, Scale, Template
from poolhouse.api.kinds.model import Count, Model, SchemaOf
from poolhouse.api.kinds.resource_types import FLEETS, VMS
from poolhouse.api.kinds.virtualmachine import VMTemplate


class FleetSpec(Model):
    """How large the fleet is."""

    replicas: Count
    """Number of ships."""
    harbor: str = "home"
    """Name of the harbor."""
    template: Annotated[Json, SchemaOf(VMTemplate)]
    """Template of the ships."""


class FleetStatus(Model):
    """The ships that exist."""

    phase: str = ""
    """Moored or AtSea."""
    ready_replicas: Count = 0
    """Ships that can sail."""


def harbor(document: Json):
    if at(document, "spec", "harbor") == "lost":
        yield Problem("spec.harbor", "is not on the map")


FLEET = Kind(
    **vars(FLEETS),
    doc="A fleet of ships.",
    spec=FleetSpec,
    status=FleetStatus,
    scale=Scale(),
    columns=(Column("Harbor", ".spec.harbor", "Name of the harbor"), AGE),
    checks=(harbor,),
    templates=(Template(("spec", "template"), VMS),),
    listed_at_admission=True,
    has_finalizer=True,
    plan_path="/apis/fleets/plan",
)
'''
RESOURCE_TYPE = """
FLEETS = ResourceType(
    "poolhouse.dev", ("v1alpha1",), "Fleet", "fleets", ("flt",), phases=Phases(ready="AtSea", failed="Sunk")
)
OURS = (POOLS, FLEETS, """
TWO_LINES = {
    "from poolhouse.api.kinds.claim import CLAIM\n": "from poolhouse.api.kinds.claim import CLAIM\n"
    "from poolhouse.api.kinds.fleet import FLEET\n",
    "WARM_POOL, CLAIM)\n": "WARM_POOL, CLAIM, FLEET)\n",
}
SCRIPT = ROOT / "tests/kinds/new_kind.py"


def edit(file: Path, lines: dict[str, str]) -> None:
    text = file.read_text()
    for line, replacement in lines.items():
        assert text.count(line) == 1
        text = text.replace(line, replacement)
    file.write_text(text)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the rooms make of a kind that a copy of the package has besides."""
    directory = tmp_path_factory.mktemp("new-kind")
    shutil.copytree(ROOT / "poolhouse", directory / "poolhouse", ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "charts").symlink_to(ROOT / "charts")
    (directory / "poolhouse/api/kinds/fleet.py").write_text(MODULE)
    edit(directory / "poolhouse/api/kinds/registry.py", TWO_LINES)
    edit(directory / "poolhouse/api/kinds/resource_types.py", {"\nOURS = (POOLS, ": RESOURCE_TYPE})
    environment = {
        **os.environ,
        "PYTHONPATH": f"{directory}:{ROOT}",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_its_crd_is_generated(seen: Any) -> None:
    crd = yaml.safe_load(seen["files"]["charts/poolhouse/generated/crds/fleets.poolhouse.dev.yaml"])
    (version,) = crd["spec"]["versions"]
    assert crd["spec"]["names"]["shortNames"] == ["flt"]
    assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["harbor"]["default"] == "home"
    assert set(version["subresources"]) == {"status", "scale"}
    assert "fleets.poolhouse.dev" in yaml.safe_load(seen["files"]["charts/poolhouse/generated/kinds.yaml"])


def test_the_services_and_users_get_rights(seen: Any) -> None:
    def verbs(rules: list[Any], resource: str) -> set[str]:
        return {verb for rule in rules if resource in rule["resources"] for verb in rule["verbs"]}

    assert verbs(seen["rules"]["controllers"], "fleets") == {"get", "list", "watch", "patch"}
    assert verbs(seen["rules"]["controllers"], "fleets/status") == {"patch"}
    assert verbs(seen["rules"]["webhook"], "fleets") == {"get", "list"}
    view, edit = seen["roles"]
    assert verbs(view["rules"], "fleets") == {"get", "list", "watch"}
    assert "delete" in verbs(edit["rules"], "fleets/scale")


def test_the_webhook_is_called_and_checks_it(seen: Any) -> None:
    called = [
        configuration["kind"]
        for configuration in seen["webhooks"]
        for rule in configuration["webhooks"][0]["rules"]
        if "fleets" in rule["resources"]
    ]
    assert called == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert seen["right"] == []
    assert len(seen["wrong"]) == 2
    assert "spec.harbor: is not on the map" in seen["wrong"]
    assert any(each.startswith("spec.sails: is not a field here") for each in seen["wrong"])
    assert seen["creates"] == "virtualmachines"


def test_the_cli_shows_it(seen: Any) -> None:
    assert (seen["row"]["desired"], seen["row"]["ready"], seen["row"]["state"]) == (3, 2, "Healthy")
    assert seen["names"] == ["fleet.poolhouse.dev/north", ["Fleet", "north"]]
    assert "Fleet" in seen["planned"]
    assert seen["off"] == ["fleets"]


def test_it_has_a_reference_page_and_a_row_in_the_index(seen: Any) -> None:
    page = seen["files"]["docs/reference/fleet.md"]
    assert "| `harbor` | string | `home` | Name of the harbor. |" in page
    assert "| Harbor | `.spec.harbor` | Name of the harbor |" in page
    assert "[Fleet](fleet.md)" in seen["files"]["docs/reference/README.md"]


def test_the_defaulter_finds_the_vm_in_its_template(seen: Any) -> None:
    assert '"Fleet": ("spec", "template")' in seen["files"]["defaulter/template_paths.py"]
