"""The view of a VMI, whatever its document lacks."""

from __future__ import annotations

from controllers.shared.vmi import parse_vmi


def test_parse_vmi() -> None:
    given = {
        "metadata": {
            "namespace": "default",
            "name": "web-1",
            "uid": "run",
            "labels": {"poolhouse.dev/revision": "r1"},
            "ownerReferences": [{"uid": "u", "controller": True}],
            "creationTimestamp": "2026-03-01T11:59:48Z",
            "deletionTimestamp": "2026-03-01T12:00:00Z",
        },
        "status": {
            "phase": "Running",
            "phaseTransitionTimestamps": [
                {"phase": "Pending", "phaseTransitionTimestamp": "2026-03-01T11:59:50Z"},
                {"phase": "Running", "phaseTransitionTimestamp": "2026-03-01T11:59:58Z"},
            ],
        },
    }
    found = parse_vmi(given)
    assert found.phase_times == (("Pending", "2026-03-01T11:59:50Z"), ("Running", "2026-03-01T11:59:58Z"))
    assert (found.owner_uid, found.revision, found.phase, found.deleting) == ("u", "r1", "Running", True)
    assert (found.created_at, found.deleted_at) == ("2026-03-01T11:59:48Z", "2026-03-01T12:00:00Z")


def test_the_disks_of_a_vmi() -> None:
    volumes = [
        {"name": "a", "dataVolume": {"name": "root-1"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data-1"}},
        {"name": "c", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}},
        {"name": "d", "containerDisk": {"image": "x"}},
    ]
    found = parse_vmi({"metadata": {"name": "web-1"}, "spec": {"volumes": volumes}})
    assert found.disks == ("root-1", "data-1", "base")
