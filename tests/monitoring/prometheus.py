"""Debian's own prometheus and promtool, where `make test` has put them or the machine has them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from local.binaries import cache_dir

PLACE = cache_dir().parent / "prometheus"


def program(name: str) -> str:
    """Its path; the test is skipped where there is none."""
    found = shutil.which(name) or shutil.which(name, path=str(PLACE))
    if found is None:
        pytest.skip(f"no {name} on this machine: sh requirements/prometheus.sh {PLACE}")
    return found


def rules_directory() -> Path:
    return Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse" / "monitoring"
