"""Views of disks."""

from __future__ import annotations

from controllers.shared.disks import RetainedDisk, parse_retained_disk


def test_a_retained_disk() -> None:
    labels = {"poolhouse.dev/kept-by": "u-web", "poolhouse.dev/kept-for": "web-3"}
    given = {"metadata": {"namespace": "default", "name": "root-3", "labels": labels}}
    assert parse_retained_disk(given) == RetainedDisk("default", "root-3", "u-web", "web-3")
