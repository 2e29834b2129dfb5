"""Finds prometheus and promtool: those of the machine, or those that `make test` has downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from local.binaries import cache_dir

DIRECTORY = cache_dir().parent / "prometheus"


def program(name: str) -> str:
    """Returns the path of the program, or skips the test."""
    found = shutil.which(name) or shutil.which(name, path=str(DIRECTORY))
    if found is None:
        pytest.skip(f"{name} is not installed; run: sh requirements/prometheus.sh {DIRECTORY}")
    return found


def rules_directory() -> Path:
    return Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse" / "monitoring"
