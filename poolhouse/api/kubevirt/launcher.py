"""How a user reads the domain of a running VMI: with virsh in the container `compute` of its launcher Pod.

KubeVirt starts libvirt in the Pod: as root for the system, and else for the session of its user, with a socket that
KubeVirt's own tests name too. `virsh dumpxml 1` finds it as well, but only because KubeVirt sets XDG_RUNTIME_DIR: where
this is missing, virsh starts another libvirt, which says that the domain is shut off.
"""

from collections.abc import Iterable

from poolhouse.api.apimachinery.unstructured import Json, at

COMPUTE = "compute"
LAUNCHER_PREFIX = "virt-launcher-"
SESSION = "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock"
SYSTEM = "qemu:///system"
ADDRESSES = (SESSION, SYSTEM)
NON_ROOT = "kubevirt.io/nonroot"
"""annotation of the VMIs that an old KubeVirt started without root"""


def dump_command(vmi: Json) -> list[str]:
    """The command that prints the XML of a VMI's domain, without secrets."""
    metadata = vmi["metadata"]
    is_root = not at(vmi, "status", "runtimeUser") and NON_ROOT not in (metadata.get("annotations") or {})
    return ["virsh", "-c", SYSTEM if is_root else SESSION, "dumpxml", domain_name(vmi)]


def domain_name(vmi: Json) -> str:
    return f"{vmi['metadata']['namespace']}_{vmi['metadata']['name']}"


def running_pod(vmi: Json, pods: Iterable[Json]) -> str | None:
    """The name of the launcher Pod in which the guest runs; None if it is not there. Any user may create a Pod with the
    labels of such a Pod, so only those count that KubeVirt names in the VMI's status. The target of a live migration is
    on another node."""
    active = at(vmi, "status", "activePods")
    for pod in pods:
        known = isinstance(active, dict) and pod["metadata"].get("uid") in active
        here = at(pod, "spec", "nodeName") == at(vmi, "status", "nodeName")
        if known and here and at(pod, "status", "phase") == "Running":
            return str(pod["metadata"]["name"])
    return None
