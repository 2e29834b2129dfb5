"""The calls of libvirt and the cache of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from defaulter import xml
from defaulter.errors import DomainRejected, LibvirtFailed, LibvirtUnavailable

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
    host = Libvirt(Path("/nowhere"), lambda _root: connection)
    assert [host.knows_cpu_feature("x86_64", name) for name in ("vmx", "svn", "vmx", "svn")] == [True, False] * 2
    assert connection.asked == ["vmx", "svn"]
    assert host.knows_cpu_feature("aarch64", "vmx")
    assert connection.asked == ["vmx", "svn", "vmx"], "each architecture has features of its own"


def test_the_cache_of_cpu_features_is_bounded() -> None:
    connection = Connection()
    host = Libvirt(Path("/nowhere"), lambda _root: connection)
    for each in range(5000):
        host.knows_cpu_feature("x86_64", f"made-up-{each}")
    long = "x" * 65
    connection.asked.clear()
    host.knows_cpu_feature("x86_64", "made-up-4999")
    host.knows_cpu_feature("x86_64", "made-up-0")
    host.knows_cpu_feature("x86_64", long)
    host.knows_cpu_feature("x86_64", long)
    assert connection.asked == ["made-up-0", long, long]


ARM = "<domain type='qemu'><name>a</name><os><type arch='aarch64'>hvm</type></os></domain>"
PROBE_FAILED = "internal error: Failed to start QEMU binary /opt/bin/qemu-system-aarch64 for probing: "


class Failing:
    """Refuses each domain with one error, apart from those of the architectures that work."""

    def __init__(self, code: int, message: str, *working: str) -> None:
        self._code, self._message, self._working = code, message, working

    def defineXMLFlags(self, text: str, flags: int) -> Any:
        domain = xml.read(text)
        type_element = domain.find("os/type")
        if domain.findtext("name") == "plain" and type_element.get("arch", "x86_64") in self._working:
            return self
        error = libvirt.libvirtError("")
        error.err = (self._code, 0, self._message)
        raise error

    def undefine(self) -> None:
        pass

    def getCapabilities(self) -> str:
        machine = "<os_type>hvm</os_type><arch name='aarch64'><machine>virt</machine></arch>"
        return f"<capabilities><guest>{machine}</guest></capabilities>"


def test_an_unknown_architecture_costs_no_worker() -> None:
    """No plain domain of it can be defined either."""
    failing = Failing(libvirt.VIR_ERR_INTERNAL_ERROR, "internal error: malformed uuid element", "x86_64")
    host = Libvirt(Path("/nowhere"), lambda _root: failing)
    with pytest.raises(DomainRejected, match="malformed"), host.scratch() as define:
        define(ARM.replace("aarch64", "q35"))
    assert not host.failure


@pytest.mark.parametrize(
    ("code", "message", "working", "expected", "said", "ends"),
    [
        pytest.param(
            libvirt.VIR_ERR_INTERNAL_ERROR,
            PROBE_FAILED,
            ("x86_64",),
            LibvirtUnavailable,
            "the emulator for aarch64 does not work: "
            "internal error: Failed to start QEMU binary qemu-system-aarch64 for probing: ",
            True,
            id="an emulator that fails is not the author's fault, and its path is not told",
        ),
        pytest.param(
            libvirt.VIR_ERR_INTERNAL_ERROR,
            "internal error: malformed uuid element",
            ("x86_64", "aarch64"),
            DomainRejected,
            "internal error: malformed uuid element",
            False,
            id="the domain is the cause if the emulator works",
        ),
        pytest.param(
            libvirt.VIR_ERR_INTERNAL_ERROR,
            "internal error: no memory",
            (),
            LibvirtFailed,
            "internal error: no memory",
            True,
            id="libvirt fails for every domain",
        ),
        pytest.param(
            libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
            "unsupported configuration: No emulator found for arch 'aarch64'",
            ("x86_64",),
            LibvirtUnavailable,
            "there is no emulator for aarch64 here",
            True,
            id="an emulator that this libvirt had is gone",
        ),
        pytest.param(
            libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
            "unsupported configuration: No emulator found for arch 'ppc64'",
            ("x86_64",),
            LibvirtUnavailable,
            "there is no emulator for ppc64 here",
            False,
            id="a new worker would not have it either",
        ),
        pytest.param(
            libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
            "unsupported configuration: Emulator '/usr/bin/qemu-system-aarch64' does not support machine type 'x'",
            (),
            DomainRejected,
            "unsupported configuration: Emulator 'qemu-system-aarch64' does not support machine type 'x'",
            False,
            id="a value that the emulator does not support",
        ),
    ],
)
def test_an_error_is_the_author_s_the_emulator_s_or_libvirt_s(
    code: int, message: str, working: tuple[str, ...], expected: type[Exception], said: str, ends: bool
) -> None:
    host = Libvirt(Path("/nowhere"), lambda _root: Failing(code, message, *working))
    with pytest.raises(Exception, match=r".") as raised, host.scratch() as define:
        define(ARM)
    assert (type(raised.value), str(raised.value)) == (expected, said)
    assert bool(host.failure) is ends, "a worker whose libvirt or emulator failed is replaced"
