"""Runs libvirt's embedded QEMU driver below a root directory. No other module of the package imports libvirt."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import libvirt

from defaulter import xml
from defaulter.errors import DomainRejected, LibvirtFailed

# Error codes that mean an invalid domain. Other codes, such as "internal error", may mean that libvirt is broken.
_DOMAIN_ERRORS = frozenset(
    {
        libvirt.VIR_ERR_INVALID_ARG,
        libvirt.VIR_ERR_XML_ERROR,
        libvirt.VIR_ERR_XML_DETAIL,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
        libvirt.VIR_ERR_NO_NAME,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_OS_TYPE,
        libvirt.VIR_ERR_NO_SUPPORT,
    }
)


_PLAIN = "<domain type='qemu'><name>plain</name><memory>65536</memory><os><type>hvm</type></os></domain>"
_PLAIN_CPU = "qemu64"
_MAX_CACHED_FEATURES = 1024
_MAX_CACHED_NAME_LENGTH = 64
"""limits the cache, because a user may write any name"""

Define = Callable[[str], str]


def _embedded(root: Path) -> libvirt.virConnect:
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_events, name="libvirt events", daemon=True).start()
    try:
        return libvirt.open(f"qemu:///embed?root={root}")
    except libvirt.libvirtError as error:
        raise LibvirtFailed(str(error)) from error


class Libvirt:
    """An embedded libvirt, which is not thread-safe. No other libvirt may use its root directory."""

    def __init__(self, root: Path, connect: Callable[[Path], libvirt.virConnect] = _embedded) -> None:
        self._connection = connect(root)
        self.failed = False
        """whether libvirt has failed for a valid domain"""
        self._machines: dict[str, dict[str, str | None]] = {}
        self._cpu_models: dict[str, frozenset[str]] = {}
        self._knows_cpu_feature = lru_cache(_MAX_CACHED_FEATURES)(self._find_cpu_feature)

    @contextmanager
    def scratch(self) -> Iterator[Define]:
        """A function that defines a domain and returns libvirt's XML. At the end, all its domains are undefined."""
        defined: list[libvirt.virDomain] = []

        def define(text: str) -> str:
            try:
                domain = self._connection.defineXMLFlags(text, 0)
                defined[:] = [domain]
                return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
            except libvirt.libvirtError as error:
                message = error.get_error_message() or str(error)
                if error.get_error_code() in _DOMAIN_ERRORS or self._works():
                    raise DomainRejected(message) from error
                self.failed = True
                raise LibvirtFailed(message) from error

        try:
            yield define
        finally:
            for domain in defined:
                try:
                    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
                except libvirt.libvirtError as error:
                    raise LibvirtFailed(f"a domain stays defined: {error}") from error

    def _works(self) -> bool:
        """Whether libvirt can define a valid domain."""
        with suppress(libvirt.libvirtError):
            self._connection.defineXMLFlags(_PLAIN, 0).undefine()
            return True
        return False

    def leftovers(self) -> int:
        return int(self._connection.numOfDefinedDomains())

    def version(self) -> str:
        return _dotted(libvirt.getVersion())

    def qemu(self) -> str:
        return _dotted(self._connection.getVersion())

    def machines(self) -> dict[str, dict[str, str | None]]:
        """By QEMU architecture, all machine types. The value is the canonical type of an alias, else None."""
        if not self._machines:
            for guest in xml.read(self._connection.getCapabilities()).iterfind("guest"):
                arch = guest.find("arch")
                if arch is not None and guest.findtext("os_type") == "hvm":
                    machines = {m.text or "": m.get("canonical") for m in arch.iterfind("machine")}
                    self._machines.setdefault(arch.get("name", ""), {}).update(machines)
        return self._machines

    def cpu_models(self, arch: str) -> frozenset[str]:
        """Names of the CPU models; empty if libvirt cannot list them."""
        if arch not in self._cpu_models:
            self._cpu_models[arch] = frozenset()
            with suppress(libvirt.libvirtError):
                self._cpu_models[arch] = frozenset(self._connection.getCPUModelNames(arch, 0) or ())
        return self._cpu_models[arch]

    def knows_cpu_feature(self, arch: str, name: str) -> bool:
        """Whether libvirt's CPU map has the feature, or the map is unknown. A define does not check features."""
        ask = self._knows_cpu_feature if len(name) <= _MAX_CACHED_NAME_LENGTH else self._find_cpu_feature
        return ask(arch, name)

    def _find_cpu_feature(self, arch: str, name: str) -> bool:
        cpu = xml.element("cpu")
        xml.add(cpu, "arch", arch)
        xml.add(cpu, "model", _PLAIN_CPU)
        xml.add(cpu, "feature", name=name)
        try:
            self._connection.baselineCPU([xml.write(cpu)], 0)
        except libvirt.libvirtError as error:
            return not (error.get_error_message() or "").endswith(f"Unknown CPU feature {name}")
        return True


def _events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


def _dotted(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"
