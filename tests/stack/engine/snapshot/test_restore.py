"""VirtualMachineRestores by KubeVirt's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poolhouse.stack.engine.disk_objects import Restore, VolumeBackup
from poolhouse.stack.engine.qemu.snapshots import backup_xml
from poolhouse.stack.engine.resources import LAST_RESTORE_ANNOTATION
from poolhouse.stack.engine.snapshot.restore import not_ready as why_not_ready
from poolhouse.stack.engine.snapshot.restore import restored_vm, volume_name
from poolhouse.stack.engine.snapshot.storage import SnapshotRefused
from tests.stack.engine.builders import NOW, ago


def restore(**given: Any) -> Restore:
    return Restore("default", "r", "r-uid", vm="web-1", snapshot="s", **{"created": ago(60), **given})


@pytest.mark.parametrize(
    ("policy", "name"),
    [("InPlace", "root-1"), ("PrefixTargetName", "web-1-disk"), ("RandomizeNames", "restore-r-uid-disk")],
)
def test_names_of_restored_disks(policy: str, name: str) -> None:
    assert volume_name(restore(volume_policy=policy), VolumeBackup("disk", "root-1", "copy")) == name


@pytest.mark.parametrize(
    ("policy", "seconds", "failed"),
    [
        ("StopTarget", 900, False),
        ("WaitEventually", 900, False),
        ("FailImmediate", 1, True),
        ("WaitGracePeriod", 299, False),
        ("WaitGracePeriod", 300, True),
    ],
)
def test_a_vm_that_runs(policy: str, seconds: float, failed: bool) -> None:
    assert why_not_ready(restore(readiness_policy=policy, created=ago(seconds)), NOW)[1] is failed


SPEC = {
    "dataVolumeTemplates": [{"metadata": {"name": "root-1"}}],
    "template": {
        "spec": {"volumes": [{"name": "disk", "dataVolume": {"name": "root-1"}, "persistentVolumeClaim": None}]}
    },
}


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        pytest.param({"runStrategy": "Manual"}, {"runStrategy": "Manual"}, id="the run strategy stays"),
        pytest.param({"running": True}, {"running": False}, id="running becomes false"),
        pytest.param({"running": None, "runStrategy": "Manual"}, {"runStrategy": "Manual"}, id="null is not running"),
    ],
)
def test_the_vm_gets_the_spec_of_the_snapshot(live: dict[str, Any], expected: dict[str, Any]) -> None:
    source = {"spec": {**SPEC, "runStrategy": "Always"}}
    found = restored_vm({"metadata": {"labels": {"a": "b"}}, "spec": live}, source, {"root-1": "new"}, restore())
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["annotations"] == {LAST_RESTORE_ANNOTATION: "r-r-uid"}
    assert {key: found["spec"][key] for key in found["spec"] if key.startswith("run")} == expected
    assert found["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "new"
    assert found["spec"]["template"]["spec"]["volumes"][0]["dataVolume"]["name"] == "new"


DOMAIN = """<domain><devices>
<disk><source file='/disks/a.qcow2'/><target dev='vda'/></disk>
<disk device='cdrom'><target dev='sda'/></disk>
<disk><source file='/disks/scratch.qcow2'/><target dev='vdb'/></disk>
</devices></domain>"""


def test_a_backup_copies_only_the_disks_of_the_snapshot() -> None:
    made = backup_xml(DOMAIN, {Path("/disks/a.qcow2"): Path("/copies/a.new")})
    assert made == (
        '<domainbackup mode="push"><disks><disk name="vda" backup="yes" type="file"><driver type="qcow2"/>'
        '<target file="/copies/a.new"/></disk><disk name="sda" backup="no"/><disk name="vdb" backup="no"/></disks>'
        "</domainbackup>"
    )


def test_a_disk_that_the_guest_does_not_have_yet_is_named() -> None:
    with pytest.raises(SnapshotRefused, match="does not have the disks hot"):
        backup_xml(DOMAIN, {Path("/disks/hot.qcow2"): Path("/copies/hot.new")})
