from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.stack.engine.datavolume.phases import BindPVC, CreatePVC, ImportProgress, StartImport, plan_data_volume
from poolhouse.stack.engine.disk_objects import PVC
from poolhouse.stack.engine.fault_injection import Faults
from poolhouse.stack.engine.resources import has_condition
from poolhouse.stack.engine.simulated import SimulatedImporter
from tests.stack.engine.builders import NOW, ago, disk, pvc


@pytest.mark.parametrize(
    ("made", "progress", "phase", "actions"),
    [
        pytest.param(None, ImportProgress(), "", (CreatePVC(),), id="the PVC is created"),
        pytest.param(
            pvc(phase="Pending"), ImportProgress(), "ImportInProgress", (StartImport(),), id="the import starts"
        ),
        pytest.param(
            pvc(phase="Pending"),
            ImportProgress("running", share=0.5),
            "ImportInProgress",
            (StartImport(),),
            id="the import runs",
        ),
        pytest.param(
            pvc(phase="Pending"),
            ImportProgress("done", content="image"),
            "",
            (BindPVC("image"),),
            id="the PVC is bound",
        ),
        pytest.param(
            pvc(phase="Pending", content="tiny"),
            ImportProgress(),
            "",
            (BindPVC("tiny"),),
            id="the PVC is bound after a restart",
        ),
        pytest.param(pvc(), ImportProgress(), "Succeeded", (), id="the import has succeeded"),
        pytest.param(
            pvc(data_volume_uid="another"),
            ImportProgress(),
            "",
            (),
            id="the PVC belongs to another DataVolume",
        ),
        pytest.param(
            pvc(phase="Pending"),
            ImportProgress("failed", reason="404"),
            "ImportInProgress",
            (),
            id="the import has failed",
        ),
    ],
)
def test_phase_and_actions_of_a_data_volume(
    made: PVC | None, progress: ImportProgress, phase: str, actions: tuple[Any, ...]
) -> None:
    done = plan_data_volume(disk(phase=""), made, progress, NOW)
    assert (done.status["phase"], done.actions) == (phase, actions)


def test_progress_and_failures_look_like_those_of_cdi() -> None:
    half = plan_data_volume(disk(phase=""), pvc(phase="Pending"), ImportProgress("running", share=0.5), NOW).status
    assert half["progress"] == "50.0%"
    failed = plan_data_volume(
        disk(phase=""), pvc(phase="Pending"), ImportProgress("failed", reason="404", failures=2), NOW
    ).status
    assert (failed["restartCount"], failed["phase"]) == (2, "ImportInProgress")
    assert has_condition(failed["conditions"], "Running", "Error", "False")
    assert disk(status=failed).failed


def test_simulated_imports_fail_as_often_as_set() -> None:
    importer, never = SimulatedImporter(), Faults(fail="DataVolumeError")
    assert importer.progress(disk(created=ago(99)), None, never, NOW).state == "failed"
    twice = Faults(fail="DataVolumeError", fail_times=2)
    assert importer.progress(disk(created=ago(3)), None, twice, NOW).failures == 2
    assert importer.progress(disk(created=ago(4)), None, twice, NOW).state == "done"
    assert importer.progress(disk(created=ago(0)), None, Faults(), NOW).state == "done"


@pytest.mark.parametrize(
    ("url", "state"),
    [
        pytest.param("docker://quay.io/containerdisks/fedora:latest", "done", id="an image"),
        pytest.param("docker://fedora", "failed", id="an image without its registry, which no real engine imports"),
    ],
)
def test_simulated_imports_fail_for_images_that_name_no_registry(url: str, state: str) -> None:
    volume = disk(source={"registry": {"url": url}})
    assert SimulatedImporter().progress(volume, None, Faults(), NOW).state == state


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("128Mi", 128 << 20),
        ("1.5Gi", 3 << 29),
        ("500M", 500_000_000),
        ("7", 7),
        ("1500m", 2),
        ("1e3", 1000),
        ("2k", 2000),
        ("x", None),
        ("1K", None),
        ("", None),
        ("12 Mi", None),
    ],
)
def test_quantities(text: str, size: int | None) -> None:
    assert to_int(text) == size
