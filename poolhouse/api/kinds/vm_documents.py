"""Derives facts from the document of a VirtualMachine: run strategy, earlier starts, firmware UUID.

If a VM has no firmware UUID, KubeVirt derives a UUID from the VM's name, the same at each start. Windows licenses
depend on the UUID, so a VM that has started must keep it.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from poolhouse.api.apimachinery.unstructured import Json, at, replaced, typed
from poolhouse.api.kinds.meta import UNDEFAULTED

KUBEVIRT = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
"""KubeVirt's namespace for derived UUIDs"""


def run_strategy(spec: Mapping[str, Any]) -> str:
    """The run strategy of a VM, from `runStrategy` or the older field `running`."""
    return str(spec.get("runStrategy") or ("Always" if spec.get("running") else "Halted"))


def may_have_run(document: Json, *, going: bool = False) -> bool:
    """Whether the VM may have started before. `going` means that a VMI of the VM is about to end.

    KubeVirt writes the run strategy into the status when it creates the first VMI. Older versions of KubeVirt do not.
    Without the value, a stopped VM counts as started, unless its run strategy would start it: KubeVirt reports such a
    VM as stopped only before its first start.
    """
    state = at(document, "status", "printableStatus")
    runs = run_strategy(typed(dict, document, "spec") or {}) in ("Always", "RerunOnFailure")
    return going or bool(at(document, "status", "runStrategy")) or (state == "Stopped" and not runs)


def with_undefaulted(document: Json, reason: str | None) -> Json:
    """The object with the annotation poolhouse.dev/undefaulted, which says why it has no hardware defaults; without the
    annotation for None."""
    metadata = typed(dict, document, "metadata") or {}
    annotations = typed(dict, metadata, "annotations") or {}
    if reason is None and UNDEFAULTED not in annotations:
        return document
    others = {key: value for key, value in annotations.items() if key != UNDEFAULTED}
    mark = {} if reason is None else {UNDEFAULTED: str(reason)}
    return {**document, "metadata": {**metadata, "annotations": {**others, **mark}}}


RESTORED = "restore.kubevirt.io/lastRestoreUID"
"""KubeVirt's annotation of a VM that it has restored or cloned from a snapshot"""


def is_restored(document: Json) -> bool:
    return bool(at(document, "metadata", "annotations", RESTORED))


def with_firmware_uuid(document: Json) -> Json:
    """The VM, with the firmware UUID that KubeVirt would derive if the domain has none."""
    domain = at(document, "spec", "template", "spec", "domain")
    firmware = (at(domain, "firmware") or {}) if isinstance(domain, dict) else None
    if not isinstance(firmware, dict) or firmware.get("uuid"):
        return document
    uuid = str(uuid5(KUBEVIRT, document["metadata"]["name"]))
    return replaced(document, {**domain, "firmware": {**firmware, "uuid": uuid}}, "spec", "template", "spec", "domain")
