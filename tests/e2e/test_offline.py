"""What the end-to-end tests decide without a cluster: which tests a cluster can run, and the table of results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.capabilities import Capabilities, count_nodes
from tests.e2e.domains import differences, facts
from tests.e2e.results import Row, markdown
from tests.e2e.scope import disks

pytestmark = pytest.mark.offline

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
FULL = Capabilities(cdi="v1.66.0", snapshots=True, nodes=2, sources=frozenset({"http"}))


@pytest.mark.parametrize(
    ("found", "needs", "reason"),
    [
        pytest.param(FULL, {"cdi": True, "snapshots": True, "nodes": 2, "source": "http"}, "", id="everything"),
        pytest.param(FULL, {"source": "clone"}, "no --clone is given", id="a source that is not named"),
        pytest.param(FULL, {"source": "data_source"}, "no --data-source is given", id="a name with two words"),
        pytest.param(FULL, {"source": "blank"}, "", id="blank disks need CDI only"),
        pytest.param(FULL, {"nodes": 3}, "the cluster has 2 nodes for VMs; the test needs 3", id="nodes"),
        pytest.param(Capabilities(), {"source": "blank"}, "the cluster has no CDI", id="blank disks without CDI"),
        pytest.param(Capabilities(), {"cdi": True}, "the cluster has no CDI", id="no CDI"),
        pytest.param(
            FULL,
            {"hardware_record": True},
            "KubeVirt has neither of the feature gates Sidecar and Plugins",
            id="no hook that restores hardware",
        ),
        pytest.param(
            FULL, {"embedded": True}, "only guests of the embedded stack say what they see", id="a guest of ours"
        ),
        pytest.param(
            Capabilities(changes=frozenset({"release"})),
            {"change": "upgrade-kubevirt-to"},
            "no --upgrade-kubevirt-to is given: it changes the whole cluster",
            id="what changes the cluster",
        ),
        pytest.param(Capabilities(), {"snapshots": True}, "the cluster takes no snapshots of VMs", id="no snapshots"),
    ],
)
def test_a_test_is_skipped_with_a_reason(found: Capabilities, needs: Json, reason: str) -> None:
    assert found.missing(needs) == reason


def node(schedulable: str = "true", ready: str = "True", **spec: Any) -> Json:
    labels = {"kubevirt.io/schedulable": schedulable}
    return {
        "metadata": {"labels": labels},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_nodes_that_run_vms() -> None:
    assert count_nodes([node(), node("false"), node(ready="Unknown"), node(unschedulable=True), {"metadata": {}}]) == 1


def test_the_table_of_results() -> None:
    rows = [
        Row("Pools", "A pool is scaled", "passed", 3.2, measured={"ready after": "25 ms"}),
        Row("Disks", "A disk | an import", "failed", 1, "AssertionError: expected\n 1"),
        Row("Disks", "A registry", "skipped", note="no --registry is given"),
    ]
    assert markdown("KubeVirt v1.8.4", rows).splitlines() == [
        "KubeVirt v1.8.4: 1 passed, 1 failed, 1 skipped",
        "",
        "| Area | What | Result |",
        "| --- | --- | --- |",
        "| Pools | A pool is scaled | passed, 3.2 s, ready after 25 ms |",
        r"| Disks | A disk \| an import | failed, 1 s: AssertionError: expected 1 |",
        "| Disks | A registry | skipped: no --registry is given |",
    ]


DOMAIN = """<domain><uuid>u</uuid><devices>
  <interface type='ethernet'><mac address='02:00:00:00:00:01'/><alias name='ua-net'/>
    <address type='pci' bus='{bus}'/></interface></devices></domain>"""


def test_a_moved_device_is_a_difference() -> None:
    before, after = facts(DOMAIN.format(bus="0x01")), facts(DOMAIN.format(bus="0x06"))
    assert differences(before, before) == {}
    assert differences(before, after) == {
        "interface ua-net address": ("bus=0x01 type=pci", "bus=0x06 type=pci"),
    }


CONFTEST = """
from pathlib import Path
import pytest
from tests.e2e.results import CLUSTER, ROW, Results

def pytest_configure(config):
    config.pluginmanager.register(Results(Path("out/table.md")))

@pytest.fixture(autouse=True)
def row(request, record_property):
    record_property(ROW, ("Area", request.node.name))
    record_property(CLUSTER, "KubeVirt v1.9.0")
"""
TESTS = """
import pytest

def test_good(record_property):
    record_property("took", "5 ms")

def test_bad():
    assert 1 == 2

def test_none():
    pytest.skip("no CDI")

def test_stopped():
    raise KeyboardInterrupt
"""


def test_the_table_is_written_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)
    found = json.loads((tmp_path / "out/table.json").read_text())
    assert found["cluster"] == "KubeVirt v1.9.0"
    assert [(row["what"], row["outcome"], row["note"], row["measured"]) for row in found["results"]] == [
        ("test_bad", "failed", "assert 1 == 2", {}),
        ("test_good", "passed", "", {"took": "5 ms"}),
        ("test_none", "skipped", "no CDI", {}),
        ("test_stopped", "failed", "it was interrupted", {}),
    ]
    table = (tmp_path / "out/table.md").read_text()
    assert table.startswith("KubeVirt v1.9.0: 1 passed, 2 failed, 1 skipped")


def test_a_claim_from_which_cdi_fills_a_disk_is_no_disk() -> None:
    def claim(uid: str, owner: str) -> Json:
        return {"metadata": {"uid": uid, "ownerReferences": [{"kind": owner, "name": "root-1", "controller": True}]}}

    claims = {"root-1": claim("a", "DataVolume"), "prime-a": claim("b", "PersistentVolumeClaim")}
    assert disks(claims | {"of-a-user": {"metadata": {"uid": "c"}}}) == {"root-1": "a", "of-a-user": "c"}
