"""The calls of libvirt and the cache of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from defaulter import xml

libvirt = pytest.importorskip("libvirt")

from defaulter.driver import Libvirt  # noqa: E402


class Connection:
    """Knows one CPU feature, and counts the lookups."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def baselineCPU(self, cpus: list[str], flags: int) -> str:
        (feature,) = xml.read(cpus[0]).iterfind("feature")
        self.asked.append(feature.get("name"))
        if feature.get("name") != "vmx":
            unknown = libvirt.libvirtError("")
            unknown.err = (1, 0, f"internal error: Unknown CPU feature {feature.get('name')}")
            raise unknown
        return cpus[0]


def test_each_cpu_feature_is_looked_up_once() -> None:
    connection = Connection()
    host = Libvirt(Path("/nowhere"), lambda _root: cast(Any, connection))
    assert [host.knows_cpu_feature("x86_64", name) for name in ("vmx", "svn", "vmx", "svn")] == [True, False] * 2
    assert connection.asked == ["vmx", "svn"]
    assert host.knows_cpu_feature("aarch64", "vmx")
    assert connection.asked == ["vmx", "svn", "vmx"], "each architecture has features of its own"


def test_the_cache_of_cpu_features_is_bounded() -> None:
    connection = Connection()
    host = Libvirt(Path("/nowhere"), lambda _root: cast(Any, connection))
    for each in range(5000):
        host.knows_cpu_feature("x86_64", f"made-up-{each}")
    long = "x" * 65
    connection.asked.clear()
    host.knows_cpu_feature("x86_64", "made-up-4999")
    host.knows_cpu_feature("x86_64", "made-up-0")
    host.knows_cpu_feature("x86_64", long)
    host.knows_cpu_feature("x86_64", long)
    assert connection.asked == ["made-up-0", long, long]
