"""Converts a pool of KubeVirt (`pool.kubevirt.io`) into the spec of a VirtualMachinePool of Poolhouse.

`convert` is pure. It returns the new spec, the changes field by field, and all fields that have no counterpart. With
such a field, the pool is imported only if the user drops it.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from poolhouse.api.apimachinery.unstructured import Json, at, value_text
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.api.kubevirt.volumes import CLOUD_INIT_METHODS
from poolhouse.runtime.resource import Resource

KUBEVIRT_POOLS = Resource("pool.kubevirt.io", "v1beta1", "virtualmachinepools", "VirtualMachinePool")
"""KubeVirt's pools. KubeVirt before 1.6 serves only v1alpha1."""
FINALIZER = "pool.kubevirt.io/finalizer"
"""KubeVirt's finalizer of its pools and of their VMs."""
REVISION_LABEL = "kubevirt.io/vm-pool-revision-name"
ALL = "100%"
FAILING_STATUSES = (
    "CrashLoopBackOff",
    "DataVolumeError",
    "ErrImagePull",
    "ErrorPvcNotFound",
    "ErrorUnschedulable",
    "ImagePullBackOff",
)
"""Values of a VM's `status.printableStatus` with which KubeVirt replaces the VM."""
DEFAULT_FAILING_SECONDS = 300
BASE_POLICIES = ("Newest", "Oldest", "Random")
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_NO_FILTER = "KubeVirt never chooses a VM that the selector does not match; Poolhouse has no such filter"


@dataclass(frozen=True)
class Change:
    """A field that the import changes."""

    path: str
    before: Any
    to: str
    """Path of the field in the new pool; empty if the field is left out"""
    after: Any
    note: str = ""

    def __str__(self) -> str:
        before = "not set" if self.before is None else value_text(self.before)
        after = f"{self.to}: {value_text(self.after)}" if self.to else "left out"
        return f"{self.path}: {before} -> {after}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Refusal:
    """A field that has no counterpart."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class Conversion:
    spec: Json = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    drops: tuple[str, ...] = ()

    def drops_field(self, path: str, reason: str, value: Any) -> bool:
        """Whether the user drops the field. If not, the import is refused."""
        if any(is_named(path, each) for each in self.drops):
            self.dropped.append(path)
            self.changes.append(Change(path, value, "", None, f"dropped: {reason}"))
            return True
        self.refusals.append(Refusal(path, reason))
        return False

    def rename(self, path: str, before: Any, to: str, after: Any, note: str = "") -> None:
        self.changes.append(Change(path, before, to, after, note))

    def refuse_others(self, path: str, value: Json, known: Iterable[str]) -> None:
        for key in sorted(value.keys() - set(known)):
            self.drops_field(f"{path}.{key}", "Poolhouse does not know this field", value[key])

    def unused_drops(self) -> list[str]:
        """Fields that the user drops and that would not refuse the import."""
        return [each for each in self.drops if not any(is_named(path, each) for path in self.dropped)]


def is_named(path: str, named: str) -> bool:
    """Whether the user has named the field: by its path, by the path of a field around it, or by the end of its path,
    such as `sortPolicy`."""
    parts, wanted = path.removeprefix("spec.").split("."), named.strip(".").removeprefix("spec.").split(".")
    starts = range(len(parts) - len(wanted) + 1)
    return parts[: len(wanted)] == wanted or any(parts[start:] == wanted for start in starts)


def convert(document: Json, drops: Iterable[str] = ()) -> Conversion:
    """The spec of the new pool, for a pool of KubeVirt."""
    found = Conversion(drops=tuple(drops))
    spec, metadata = document.get("spec") or {}, document.get("metadata") or {}
    if metadata.get("ownerReferences"):
        owners = ", ".join(f"{each.get('kind')} {each.get('name')}" for each in metadata["ownerReferences"])
        found.drops_field("metadata.ownerReferences", f"the new pool does not belong to {owners}", owners)
    if others := [each for each in metadata.get("finalizers") or () if each not in (FINALIZER, "orphan")]:
        found.drops_field("metadata.finalizers", "the new pool does not get finalizers of others", ", ".join(others))
    found.spec["replicas"] = 1 if spec.get("replicas") is None else spec["replicas"]
    if spec.get("replicas") is None:
        found.rename("spec.replicas", None, "spec.replicas", 1, "KubeVirt's default")
    if spec.get("selector"):
        found.rename("spec.selector", spec["selector"], "", None, "a pool owns its VMs by reference")
    if spec.get("paused"):
        found.spec["paused"] = True
    _template(found, spec)
    _max_unavailable(found, spec.get("maxUnavailable"))
    _update_strategy(found, spec.get("updateStrategy") or {})
    _scale_in_strategy(found, spec.get("scaleInStrategy") or {})
    _autohealing(found, spec)
    found.refuse_others("spec", {key: value for key, value in spec.items() if value is not None}, _KNOWN)
    return found


_KNOWN = (
    "replicas",
    "selector",
    "virtualMachineTemplate",
    "paused",
    "nameGeneration",
    "maxUnavailable",
    "scaleInStrategy",
    "updateStrategy",
    "autohealing",
)


def revision_spec(data: Json, drops: Iterable[str]) -> Json:
    """The part of a spec that determines VMs, for the data of a ControllerRevision of KubeVirt."""
    found = Conversion(drops=tuple(drops), spec={"replicas": 0})
    _template(found, data)
    return found.spec


def pool_metadata(document: Json) -> Json:
    """Labels and annotations of the new pool. Marks of the tools that manage the old pool are left out: such a tool
    would delete the new pool."""
    metadata = document.get("metadata") or {}
    marks = without_tracking_marks(metadata)
    kept = {
        part: {key: value for key, value in (metadata.get(part) or {}).items() if key not in marks.get(part, {})}
        for part in ("labels", "annotations")
    }
    return {part: values for part, values in kept.items() if values}


def _template(found: Conversion, spec: Json) -> None:
    template, names = spec.get("virtualMachineTemplate") or {}, spec.get("nameGeneration") or {}
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    for key in sorted(metadata.keys() - {"labels", "annotations", "creationTimestamp"}):
        path = f"spec.virtualMachineTemplate.metadata.{key}"
        found.rename(path, metadata[key], "", None, "KubeVirt does not use the field either")
    found.spec["template"] = {**({"metadata": kept} if kept else {}), "spec": template.get("spec") or {}}
    found.rename("spec.virtualMachineTemplate", "the template", "spec.template", "the same template")
    found.refuse_others("spec.virtualMachineTemplate", template, ("metadata", "spec"))
    generation = {}
    for old, new, kind in _POSTFIXES:
        path = f"spec.nameGeneration.{old}"
        if not names.get(old):
            continue
        elsewhere = sorted(_also_postfixed(found.spec["template"], kind))
        reason = f"Poolhouse appends the number to {', '.join(elsewhere)} too, and KubeVirt does not"
        if elsewhere:
            found.drops_field(path, reason, names[old])
            continue
        generation[new] = True
        found.rename(path, True, f"spec.nameGeneration.{new}", True)
    if generation:
        found.spec["nameGeneration"] = generation
    found.refuse_others("spec.nameGeneration", names, (old for old, _, _ in _POSTFIXES))


_POSTFIXES = (
    ("appendIndexToConfigMapRefs", "appendPostfixToConfigMapReferences", "configMap"),
    ("appendIndexToSecretRefs", "appendPostfixToSecretReferences", "secret"),
)


def _also_postfixed(template: Json, kind: str) -> Iterator[str]:
    """The volumes whose references get a postfix in Poolhouse only."""
    for volume in at(template, "spec", "template", "spec", "volumes") or ():
        if at(volume, "sysprep", kind, "name"):
            yield f"volume {volume.get('name')} (sysprep)"
        for source in CLOUD_INIT_METHODS if kind == "secret" else ():
            if at(volume, source, "metaDataSecretRef"):
                yield f"volume {volume.get('name')} (metaDataSecretRef)"


def _max_unavailable(found: Conversion, value: Any) -> None:
    path = "spec.maxUnavailable"
    if value is None:
        found.spec["maxUnavailable"] = ALL
        found.rename(path, None, path, ALL, "KubeVirt's default; it also limits healing and scale-in")
        return
    after = value
    if isinstance(value, str):
        number = value.removesuffix("%")
        after = f"{number}%"  # KubeVirt takes a text without % for a percentage
        if not number.isdigit():
            found.drops_field(path, f"{value!r} is neither a number nor a percentage", value)
            return
    if after in (0, "0%") or (isinstance(after, int) and after < 1):
        after = 1
    found.spec["maxUnavailable"] = after
    if after != value:
        found.rename(path, value, path, after, "KubeVirt reads it so")


def _update_strategy(found: Conversion, strategy: Json) -> None:
    path = "spec.updateStrategy"
    found.refuse_others(path, strategy, ("unmanaged", "opportunistic", "proactive"))
    if strategy.get("unmanaged") is not None:
        found.spec["updateStrategy"] = {"unmanaged": {}}
    elif strategy.get("opportunistic") is not None:
        found.spec["updateStrategy"] = {"opportunistic": {}}
        note = "Poolhouse updates a VM when it is halted; KubeVirt changes the specs of running VMs at once"
        found.rename(f"{path}.opportunistic", "{}", f"{path}.opportunistic", "{}", note)
    elif (proactive := strategy.get("proactive")) is not None:
        found.refuse_others(f"{path}.proactive", proactive, ("selectionPolicy",))
        policy = _selection(found, f"{path}.proactive.selectionPolicy", proactive.get("selectionPolicy") or {})
        found.spec["updateStrategy"] = {"proactive": {"selectionPolicy": policy} if policy else {}}


def _scale_in_strategy(found: Conversion, strategy: Json) -> None:
    path = "spec.scaleInStrategy"
    found.refuse_others(path, strategy, ("unmanaged", "opportunistic", "proactive"))
    if strategy.get("unmanaged") is not None:
        found.spec["scaleInStrategy"] = {"unmanaged": {}}
    elif (opportunistic := strategy.get("opportunistic")) is not None:
        found.refuse_others(f"{path}.opportunistic", opportunistic, ("statePreservation",))
        after = _state_preservation(found, f"{path}.opportunistic", opportunistic)
        found.spec["scaleInStrategy"] = {"opportunistic": after}
        note = "Poolhouse deletes halted VMs; KubeVirt waits until a user deletes VMs"
        found.rename(f"{path}.opportunistic", opportunistic, f"{path}.opportunistic", after, note)
    elif (proactive := strategy.get("proactive")) is not None:
        found.refuse_others(f"{path}.proactive", proactive, ("selectionPolicy", "statePreservation"))
        policy = _selection(found, f"{path}.proactive.selectionPolicy", proactive.get("selectionPolicy") or {})
        after = _state_preservation(found, f"{path}.proactive", proactive)
        found.spec["scaleInStrategy"] = {"proactive": {**({"selectionPolicy": policy} if policy else {}), **after}}


def _state_preservation(found: Conversion, path: str, strategy: Json) -> Json:
    value = strategy.get("statePreservation")
    if value != "Online":
        return {"statePreservation": value} if value else {}
    where = f"{path}.statePreservation"
    found.rename(where, "Online", where, "Offline", "KubeVirt treats Online as Offline")
    return {"statePreservation": "Offline"}


def _selection(found: Conversion, path: str, policy: Json) -> Json:
    found.refuse_others(path, policy, ("sortPolicy", "selectors"))
    selectors = policy.get("selectors") or {}
    for key in ("labelSelector", "nodeSelectorRequirementMatcher"):
        if selectors.get(key) is not None:
            found.drops_field(f"{path}.selectors.{key}", _NO_FILTER, selectors[key])
    found.refuse_others(f"{path}.selectors", selectors, ("labelSelector", "nodeSelectorRequirementMatcher"))
    order = policy.get("sortPolicy")
    if order is None:
        return {}
    if order not in BASE_POLICIES:
        found.drops_field(f"{path}.sortPolicy", f"{order} has no counterpart; there are Oldest, Newest, Random", order)
        return {}
    found.rename(f"{path}.sortPolicy", order, f"{path}.basePolicy", order)
    return {"basePolicy": order}


def _autohealing(found: Conversion, spec: Json) -> None:
    path, healing = "spec.autohealing", spec.get("autohealing")
    if healing is None:
        return
    if preserves_state(spec.get("scaleInStrategy") or {}):
        reason = "KubeVirt keeps the disks of a VM that it replaces, by statePreservation; Poolhouse deletes them"
        found.drops_field(path, reason, healing)
        return
    found.refuse_others(path, healing, ("startUpFailureThreshold", "minFailingToStartDuration"))
    seconds = parse_duration(healing.get("minFailingToStartDuration"))
    if seconds is None:
        reason = "the duration is invalid"
        value = healing["minFailingToStartDuration"]
        found.drops_field(f"{path}.minFailingToStartDuration", reason, value)
    after: Json = {
        "failingStatuses": list(FAILING_STATUSES),
        "failingStatusSeconds": seconds or DEFAULT_FAILING_SECONDS,
    }
    if threshold := healing.get("startUpFailureThreshold"):
        after["startupFailureThreshold"] = threshold
    found.spec["autohealing"] = after
    found.rename(path, healing, path, after)


def preserves_state(strategy: Json) -> bool:
    """Whether KubeVirt keeps the disks of a VM that is being deleted, before it removes its finalizer."""
    chosen = strategy.get("opportunistic") or strategy.get("proactive") or {}
    return chosen.get("statePreservation") in ("Offline", "Online")


def parse_duration(text: Any) -> int | None:
    """Seconds of a duration of Go such as `1m30s`, rounded up, at least 1. None if it is invalid."""
    if text is None:
        return DEFAULT_FAILING_SECONDS
    if not isinstance(text, str) or not re.fullmatch(rf"(?:{_DURATION.pattern})+|0", text):
        return None
    return max(1, math.ceil(sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))))
