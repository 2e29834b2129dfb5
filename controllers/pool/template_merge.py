"""Applies a new template to an existing VM: only changes of the template reach the VM.

The three-way merge compares the VM of the old template (`base`), the VM of the new template (`new`), and the existing
VM (`live`). Fields that are equal in base and new do not change. The merge therefore keeps the VM's identity, defaults,
labels of users and a started VM, without a list of such fields. If the old template is unknown, the merge sets the new
values and removes nothing.
"""

import copy
from collections.abc import Callable, Hashable
from typing import Any

from controllers.pool.power import merge_run_strategy
from poolhouse.api.apimachinery.unstructured import Json, at, entries
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.live_devices import ABSENT

TARGETS = ("disk", "cdrom", "lun")
DEVICES = ("spec", "template", "spec", "domain", "devices")

KEYS: tuple[Callable[[Any], Hashable], ...] = (lambda item: at(item, "name"), lambda item: at(item, "metadata", "name"))
"""The keys that identify the items of a list."""


def merge_template(live: Json, base: Json | None, new: Json) -> Json:
    """The existing VM with the changes of the new template."""
    found = copy.deepcopy(live)
    for part in ("labels", "annotations"):
        before = (base or {}).get("metadata", {}).get(part) or {}
        merged = _merged(found["metadata"].get(part) or {}, before, new["metadata"].get(part) or {})
        if merged or part in found["metadata"]:
            found["metadata"][part] = merged
    found["spec"] = _merged(found.get("spec") or {}, (base or {}).get("spec"), new["spec"])
    _set_run_strategy(found["spec"], live.get("spec") or {}, (base or {}).get("spec"), new["spec"])
    _forget_revision_names(found["spec"], live.get("spec") or {}, new["spec"])
    _addresses(found, live, base, new)
    _plug_again(found, base, new)
    return found


def _merged(live: Any, base: Any, new: Any) -> Any:
    if base == new:
        return live
    if isinstance(new, dict) and isinstance(live, dict):
        return _object(live, base if isinstance(base, dict) else {}, new)
    if isinstance(new, list) and isinstance(live, list) and (key := _key(live, base, new)):
        return _list(live, base if isinstance(base, list) else [], new, key)
    return copy.deepcopy(new)


def _object(live: Json, base: Json, new: Json) -> Json:
    found = dict(live)
    for name in dict.fromkeys((*base, *new)):
        if new.get(name) is not None:
            if name in found:
                found[name] = _merged(found[name], base.get(name), new[name])
            elif new[name] != base.get(name):
                found[name] = copy.deepcopy(new[name])
        elif base.get(name) is not None and name in found:
            left = _without(found[name], base[name])
            if left is None:
                del found[name]
            else:
                found[name] = left
    return found


def _without(live: Any, base: Any) -> Any:
    """The fields that others added inside a removed value, or None without such fields."""
    if isinstance(live, dict) and isinstance(base, dict):
        return _object(live, base, {}) or None
    return None


def _list(live: list[Any], base: list[Any], new: list[Any], key: Callable[[Any], Hashable]) -> list[Any]:
    """Merges lists in the order of the new template. Items of neither template come last."""
    present, before = {key(each): each for each in live}, {key(each): each for each in base}
    found = []
    for each in new:
        name = key(each)
        if name in present:
            found.append(_merged(present[name], before.get(name), each))
        elif each != before.get(name):
            found.append(copy.deepcopy(each))
    named = {key(each) for each in new}
    return found + [each for each in live if key(each) not in named and key(each) not in before]


def _key(*lists: Any) -> Callable[[Any], Hashable] | None:
    """The key that identifies the items, if all items have it."""
    items = [each for found in lists if isinstance(found, list) for each in found]
    return next((key for key in KEYS if all(isinstance(key(each), str) for each in items)), None)


POWER_FIELDS = ("running", "runStrategy")
"""A VM may have only one of these, and a start may replace `running` by `runStrategy`."""


def _set_run_strategy(spec: Json, live: Json, base: Json | None, new: Json) -> None:
    """Merges both fields as one value. The VM keeps its field if the value stays."""
    before, wanted = run_strategy(base) if base is not None else None, run_strategy(new)
    merged = wanted if before is None else merge_run_strategy(run_strategy(live), before, wanted)
    source = new if merged == wanted != before else live
    for name in POWER_FIELDS:
        spec.pop(name, None)
        if source.get(name) is not None:
            spec[name] = source[name]


def _forget_revision_names(spec: Json, before: Json, new: Json) -> None:
    """Removes the ControllerRevision of an instance type or preference that is another one now. KubeVirt then saves a
    revision of the new one."""
    for each in ("instancetype", "preference"):
        was, now = before.get(each) or {}, spec.get(each) or {}
        given = (new.get(each) or {}).get("revisionName")
        if any(was.get(key) != now.get(key) for key in ("name", "kind")) and given is None:
            now.pop("revisionName", None)


def _addresses(found: Json, live: Json, base: Json | None, new: Json) -> None:
    """Removes the address of a device whose bus or type changes."""
    for _, disk in entries(found, *DEVICES, "disks"):
        was, now, once = (_device(each, "disks", disk["name"]) for each in (live, new, base))
        for target in TARGETS:
            device, former = disk.get(target), was.get(target)
            if now.get(target) is None and once.get(target) is not None:
                disk.pop(target, None)
            elif device is not None and former is not None and device.get("bus") != former.get("bus"):
                _forget(device, now.get(target) or {})
    for _, interface in entries(found, *DEVICES, "interfaces"):
        was, now = (_device(each, "interfaces", interface["name"]) for each in (live, new))
        if was and interface.get("model") != was.get("model"):
            _forget(interface, now)


def _plug_again(found: Json, base: Json | None, new: Json) -> None:
    """Removes `state: absent` from a NIC that an earlier template removed, and the new one has again. KubeVirt may not
    have taken the NIC out of the VM yet."""
    for _, interface in entries(found, *DEVICES, "interfaces"):
        wanted, once = (_device(each, "interfaces", interface["name"]) for each in (new, base))
        if wanted and not once and interface.get("state") == ABSENT != wanted.get("state"):
            del interface["state"]


def _forget(device: Json, wanted: Json) -> None:
    if wanted.get("pciAddress") is None:
        device.pop("pciAddress", None)


def _device(vm: Json | None, kind: str, name: str) -> Json:
    """The disk or NIC with the name; an empty object if the VM has none."""
    return next((each for _, each in entries(vm, *DEVICES, kind) if each.get("name") == name), {})
