"""The generated files of the repository."""

from __future__ import annotations

from manifests.refresh import stale


def test_generated_files_are_fresh() -> None:
    assert stale() == [], "run `python -m manifests.refresh`"
