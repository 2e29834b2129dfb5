"""Who a guest is that has been started without a firmware UUID of its own: what it saw then, it is to see again.

KubeVirt gives it one that follows from its name alone, the same at each start. Windows' licences are bound to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from apimachinery.unstructured import Json, at, replaced, typed

KUBEVIRT = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
"""the namespace of those UUIDs"""


def run_strategy(spec: Mapping[str, Any]) -> str:
    """`running` is the older word for two of the strategies."""
    return str(spec.get("runStrategy") or ("Always" if spec.get("running") else "Halted"))


def may_have_run(document: Json, *, going: bool = False) -> bool:
    """`going`: an instance of it is about to end.

    KubeVirt writes the strategy into the status with the first instance, and from then on: who has it has been started.
    Without it one that was stopped and one that was never started look the same, as under a KubeVirt that does not
    write it, unless it is to run: then no instance of it is there for the moment before the first only.
    """
    state = at(document, "status", "printableStatus")
    runs = run_strategy(typed(dict, document, "spec") or {}) in ("Always", "RerunOnFailure")
    return going or bool(at(document, "status", "runStrategy")) or (state == "Stopped" and not runs)


def with_firmware_uuid(document: Json) -> Json:
    """The VM with the UUID that KubeVirt gives it, if it has none and has a domain."""
    domain = at(document, "spec", "template", "spec", "domain")
    firmware = (at(domain, "firmware") or {}) if isinstance(domain, dict) else None
    if not isinstance(firmware, dict) or firmware.get("uuid"):
        return document
    uuid = str(uuid5(KUBEVIRT, document["metadata"]["name"]))
    return replaced(document, {**domain, "firmware": {**firmware, "uuid": uuid}}, "spec", "template", "spec", "domain")
