"""Runs libvirt's embedded QEMU driver below a root directory. No other module of the package imports libvirt."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import libvirt

from defaulter import xml
from defaulter.errors import DomainRejected, LibvirtFailed, LibvirtUnavailable

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


_PLAIN = "<domain type='qemu'><name>plain</name><memory>65536</memory><os><type{}>hvm</type></os></domain>"
_NO_EMULATOR = re.compile(r"No emulator found for arch '([\w-]+)'")
_EMULATOR_PATH = re.compile(r"/[^\s']*/(qemu-[\w-]+)")
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
        return libvirt.open(f"qemu:///embed?root={quote(str(root))}")
    except libvirt.libvirtError as error:
        raise LibvirtFailed(str(error)) from error


class Libvirt:
    """An embedded libvirt, which is not thread-safe. No other libvirt may use its root directory."""

    def __init__(self, root: Path, connect: Callable[[Path], libvirt.virConnect] = _embedded) -> None:
        self._connection = connect(root)
        self.failure = ""
        """what libvirt said when it, or an emulator, failed for a valid domain; empty while both work"""
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
                raise self._explain(error, text) from error

        try:
            yield define
        finally:
            for domain in defined:
                try:
                    domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
                except libvirt.libvirtError as error:
                    raise LibvirtFailed(f"a domain stays defined: {error}") from error

    def _explain(self, error: libvirt.libvirtError, text: str) -> DomainRejected | LibvirtUnavailable:
        """Whether the domain, its emulator or libvirt is the cause. A new worker may find the emulator again: somebody
        may have replaced its program, which this worker may not start."""
        said = error.get_error_message() or str(error)
        message = _EMULATOR_PATH.sub(r"\1", said)
        if found := _NO_EMULATOR.search(said):
            self.failure = said if found[1] in self.machines() else ""
            return LibvirtUnavailable(f"there is no emulator for {found[1]} here")
        if error.get_error_code() in _DOMAIN_ERRORS:
            return DomainRejected(message)
        if not self._works():
            self.failure = said
            return LibvirtFailed(message)
        type_element = xml.read(text).find("os/type")
        arch = type_element.get("arch", "") if type_element is not None else ""
        if arch in self.machines() and not self._works(arch):  # an author may write any architecture
            self.failure = said
            return LibvirtUnavailable(f"the emulator for {arch} does not work: {message}")
        return DomainRejected(message)

    def _works(self, arch: str = "") -> bool:
        """Whether libvirt can define a valid domain, of this or any architecture."""
        with suppress(libvirt.libvirtError):
            self._connection.defineXMLFlags(_PLAIN.format(f" arch='{arch}'" if arch else ""), 0).undefine()
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
