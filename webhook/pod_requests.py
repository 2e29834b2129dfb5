"""What the Pod of a VMI requests at least.

KubeVirt's rules are in `VMIResourcePredicates` of its template.go and in its renderresources.go, for v1.5 in the
webhook's `SetDefaultVirtualMachineInstanceSpec`. What its own programs need is left out: it depends on devices and on
the release.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

from poolhouse.api.apimachinery.quantity import to_fraction
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings

SIZES = ("cpu", "memory", "resources")
"""the parts of a domain that decide it"""
TOPOLOGY = ("sockets", "cores", "threads")
CPU_REQUEST = Fraction(1, 10)
"""KubeVirt ignores this value of its setting `cpuRequest`, which is the default."""


def pod_requests(vmi: Json, settings: ClusterSettings | None) -> Iterator[tuple[str, Fraction]]:
    """By the spec of a VMI with the fields of its instance type. Without the settings of KubeVirt, the size of a guest
    says nothing about its Pod."""
    if (cpu := _cpu(vmi, settings)) is not None:
        yield "cpu", cpu
    if (memory := _memory(vmi, settings)) is not None:
        yield "memory", memory


def _cpu(vmi: Json, settings: ClusterSettings | None) -> Fraction | None:
    cpu, requested = at(vmi, "domain", "cpu"), _requested(vmi, "cpu")
    counts = [typed(int, cpu, part) or 0 for part in TOPOLOGY]
    count = Fraction(prod(each or 1 for each in counts))
    if at(cpu, "dedicatedCpuPlacement") is True:
        return count if any(counts) else requested
    if requested is not None or settings is None:
        return requested
    request = to_fraction(settings.cpu_request)
    return request if request not in (None, CPU_REQUEST) else count / settings.cpu_allocation_ratio


def _memory(vmi: Json, settings: ClusterSettings | None) -> Fraction | None:
    memory, requested = at(vmi, "domain", "memory"), _requested(vmi, "memory")
    if at(memory, "hugepages") is not None:
        return None  # hugepages are resources of their own
    guest = to_fraction(at(memory, "guest"))
    if requested is not None or guest is None or settings is None:
        return requested
    return guest * 100 / settings.memory_overcommit


def _requested(vmi: Json, resource: str) -> Fraction | None:
    """The request of the spec. A limit stands for a request that is missing."""
    resources = at(vmi, "domain", "resources")
    return to_fraction(at(resources, "requests", resource)) or to_fraction(at(resources, "limits", resource))
