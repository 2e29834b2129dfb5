"""Names what an update may have left in a VM because the revision of its former template is gone.

Without the former template, a merge cannot tell a field that the former template set from one that a user, KubeVirt or
another webhook has added, and so it removes none (see `template`).
"""

from collections.abc import Iterator
from typing import Any

from defaulter.contract import defaulted_fields
from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta

_SPEC = ("spec", "template", "spec")
_OF_VIRT_API = frozenset(
    """
    architecture domain.devices.disks domain.devices.interfaces domain.features.acpi.enabled domain.machine.type
    networks
    """.split()  # noqa: SIM905
)
"""Fields and lists that virt-api, KubeVirt or defaulting add to VMs without them."""
REMEDY = f"remove these fields and the VM's annotation {meta.LEFT_FIELDS}, or delete the VM"


def unexplained_fields(live: Json, new: Json) -> tuple[str, ...]:
    """Paths below the VMI spec of fields that the VM has, the new template does not set, and defaulting did not set."""
    volumes = at(new, *_SPEC, "volumes") or ()
    disks = {f"domain.devices.disks[{each.get('name')}]" for each in volumes}
    known = defaulted_fields(live).keys() | _OF_VIRT_API | disks
    return tuple(path for path in _added(at(live, *_SPEC), at(new, *_SPEC), "") if path not in known)


def left_fields(live: Json, new: Json, known: str, *, lost: bool) -> str:
    """The value of the annotation poolhouse.dev/left-fields after an update: what this update may have left if it has
    lost its base, and what of the fields of before is still there."""
    before = known.split(",") if known else []
    found = unexplained_fields(live, new) if lost or before else ()
    return ",".join(path for path in found if lost or path in before)


def show(fields: str) -> str:
    """The first fields of the annotation for a message."""
    return join_first(fields.split(","))


def _added(live: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(live, dict):
        for key, value in live.items():
            below = f"{path}.{key}" if path else str(key)
            if isinstance(new, dict) and new.get(key) is not None:
                yield from _added(value, new[key], below)
            elif value not in (None, "", {}, []):
                yield from _leaves(value, below)
    elif isinstance(live, list) and isinstance(new, list):
        named = {each.get("name"): each for each in new if isinstance(each, dict)}
        for each in live:
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                below = f"{path}[{each['name']}]"
                yield from _added(each, named[each["name"]], below) if each["name"] in named else (below,)


def _leaves(value: Any, path: str) -> Iterator[str]:
    """The fields of an object that the template does not have, because defaulting may have set some of them."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{key}")
    else:
        yield path
