"""Bounds of the numbers in a VMI spec, of each of its lists, and of its size: no VM of KubeVirt and QEMU has more.

libvirt allocates memory, or searches for free places, in proportion to some of these numbers. A spec beyond a bound is
refused before libvirt gets it, because it would only cost a worker. Admission refuses a spec with too many entries or
values before all other checks, whose time is proportional to its size.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import orjson

from defaulter.errors import FieldError
from defaulter.json_paths import Path, parse_path
from defaulter.vm_paths import locate
from poolhouse.api.apimachinery.problem import Problem, format_path
from poolhouse.api.apimachinery.quantity import to_int
from poolhouse.api.apimachinery.unstructured import Json, at, typed

MAX_LIST_ENTRIES = 256
"""KubeVirt's arrayLenMax, the limit on each list of a VMI spec"""
MAX_VALUES = 50_000
"""A VM whose lists have 256 disks, volumes, NICs, networks and DataVolume templates has about 12,000."""
MAX_VCPUS = 4096
"""QEMU's machine type q35 since 9.2; KubeVirt hotplugs up to 512"""


@dataclass(frozen=True)
class Limit:
    path: str
    """path in the spec; `[]` stands for each item of a list"""
    most: int
    source: str
    """who sets the bound"""
    least: int = 0
    is_quantity: bool = False


_INT32 = 2**31 - 1

NUMBERS: tuple[Limit, ...] = (
    *(Limit(f"domain.cpu.{part}", MAX_VCPUS, "QEMU: max_cpus of q35") for part in ("sockets", "cores", "threads")),
    Limit("domain.cpu.maxSockets", MAX_VCPUS, "QEMU: max_cpus of q35"),
    Limit("domain.memory.guest", 2**52, "x86-64 and ARM: 52 bits of physical addresses", is_quantity=True),
    Limit("domain.clock.utc.offsetSeconds", _INT32, "QEMU: option rtc, base", least=-_INT32),
    Limit("domain.features.hyperv.spinlocks.spinlocks", _INT32, "KubeVirt: uint32, QEMU: hv-spinlocks"),
    Limit("domain.devices.disks[].bootOrder", _INT32, "QEMU: bootindex"),
    *(
        Limit(f"domain.devices.disks[].blockSize.custom.{part}", 2 * 1024**2, "KubeVirt: maxCustomBlockSize")
        for part in ("logical", "physical")
    ),
    Limit("domain.devices.disks[].blockSize.custom.discardGranularity", _INT32, "QEMU: discard_granularity"),
    Limit("domain.devices.interfaces[].bootOrder", _INT32, "QEMU: bootindex"),
    Limit("domain.devices.interfaces[].acpiIndex", 16 * 1024 - 1, "KubeVirt and QEMU: acpi-index"),
)
_LISTS: tuple[Path, ...] = (("volumes",), ("networks",), ("accessCredentials",))


def excessive_sizes(document: Json) -> list[Problem]:
    """Problems of lists with too many entries, and of a spec with too many values. Looks at no entry of a long list."""
    found = [
        Problem(format_path(path), f"has {len(items)} entries; at most {MAX_LIST_ENTRIES} are allowed")
        for path, items in _lists(document)
        if len(items) > MAX_LIST_ENTRIES
    ]
    if not found and _has_more_values(document.get("spec"), MAX_VALUES):
        found.append(Problem("spec", f"has more than {MAX_VALUES} values"))
    return found


def _lists(document: Json) -> Iterator[tuple[Path, list[Any]]]:
    """The lists of devices and volumes in the VM of a document, with their paths."""
    location = locate(document)
    if location is None:
        return
    spec, devices = at(document, *location.spec), (*location.spec, "domain", "devices")
    found: list[tuple[Path, Any]] = [((*location.spec, *path), at(spec, *path)) for path in _LISTS]
    found += [((*devices, name), items) for name, items in (typed(dict, document, *devices) or {}).items()]
    if location.vm is not None:
        path = (*location.vm, "spec", "dataVolumeTemplates")
        found.append((path, at(document, *path)))
    for path, items in found:
        if isinstance(items, list):
            yield path, items


def _has_more_values(value: Any, most: int) -> bool:
    with suppress(TypeError, RecursionError):  # cannot be written, for example an integer beyond 64 bits
        if len(orjson.dumps(value)) <= most:  # a value has at least one character
            return False
    left, containers = most, [value] if isinstance(value, dict | list) else []
    while containers:
        container = containers.pop()
        left -= len(container)
        if left < 0:
            return True
        children = container.values() if isinstance(container, dict) else container
        containers += [child for child in children if isinstance(child, dict | list)]
    return False


def excessive_values(spec: Json) -> Iterator[FieldError]:
    """Errors of numbers beyond their bounds. A value that is no number has another error."""
    for limit in NUMBERS:
        for path, value in _values(spec, limit.path):
            number = to_int(value) if limit.is_quantity else value
            if isinstance(number, int) and not isinstance(number, bool) and abs(number) > limit.most:
                bounds = f"at most {limit.most}" if number > 0 else f"from {limit.least} to {limit.most}"
                yield FieldError(path, f"must be {bounds} ({limit.source}), not {_short(number)}")
    yield from _too_many_vcpus(spec)


def _short(number: int) -> str:
    """The number, if it is not too long for a message and for Python's conversion to text."""
    return str(number) if number.bit_length() <= 128 else "a number of more than 128 bits"


def _too_many_vcpus(spec: Json) -> Iterator[FieldError]:
    path = ("domain", "cpu")
    cpu = at(spec, *path)
    names = ("sockets", "maxSockets", "cores", "threads")
    numbers = {name: value for name in names if type(value := at(cpu, name)) is int and value}
    if any(abs(value) > MAX_VCPUS for value in numbers.values()):
        return
    sockets = max(numbers.pop("sockets", 1), numbers.pop("maxSockets", 1))
    if (vcpus := sockets * prod(numbers.values())) > MAX_VCPUS:
        yield FieldError(path, f"has {vcpus} vCPUs; at most {MAX_VCPUS} are allowed (QEMU: max_cpus of q35)")


def _values(spec: Json, path: str) -> Iterator[tuple[Path, Any]]:
    """The paths and values of the spec that a path of the table stands for."""
    here, inner = _steps(path)
    value = at(spec, *here)
    if inner is None:
        yield here, value
        return
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield (*here, index, *inner), at(item, *inner)


@cache
def _steps(path: str) -> tuple[Path, Path | None]:
    """The path of a value or of a list, and the path of the value in each item of the list."""
    before, is_list, after = path.partition("[].")
    return parse_path(before), parse_path(after) if is_list else None
