"""Finds what virt-api's validating webhooks refuse, with virt-api's messages and fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.stack.engine.admission.mutation import default_vmi
from poolhouse.stack.engine.admission.spec_rules import Cause, check_spec

RUN_STRATEGIES = ("Halted", "Manual", "Always", "RerunOnFailure", "Once")
RESTRICTED_LABELS = frozenset(
    {
        "kubevirt.io/created-by",
        "kubevirt.io/migrationJobUID",
        "kubevirt.io/nodeName",
        "kubevirt.io/migrationTargetNodeName",
        "kubevirt.io/schedulable",
        "kubevirt.io/install-strategy",
    }
)
"""labels of a VMI that only KubeVirt writes"""


def check_vm(vm: Json, settings: ClusterSettings) -> list[Cause]:
    """Returns why virt-api refuses the VM. It checks the spec with the defaults of its VMIs."""
    if vm["metadata"].get("deletionTimestamp"):
        return []
    spec = vm.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, dict):
        return [Cause("missing virtual machine template.", "spec.template", "FieldValueRequired")]
    inner = default_vmi({"spec": template.get("spec") or {}}, settings)["spec"]
    found = list(_labels((template.get("metadata") or {}).get("labels"), "spec.template.metadata", "creation"))
    if spec.get("instancetype") is None and spec.get("preference") is None:
        found += check_spec(inner, "spec.template.spec", settings)
    else:
        found += _instance_type(spec)
    return [*found, *_data_volume_templates(spec), *_run_strategy(spec)]


def check_data_volume_namespaces(old: Json | None, vm: Json, namespace: str) -> list[Cause]:
    """Returns why virt-api refuses dataVolumeTemplates of another namespace than the VM's. `namespace` is that of the
    request. Templates that a change leaves as they are stay valid."""
    templates = typed(list, vm, "spec", "dataVolumeTemplates") or []
    if vm["metadata"].get("deletionTimestamp"):
        return []
    if old is not None and (typed(list, old, "spec", "dataVolumeTemplates") or []) == templates:
        return []
    wanted = vm["metadata"].get("namespace") or namespace
    given = ((index, at(each, "metadata", "namespace")) for index, each in enumerate(templates))
    return [
        Cause(
            f"Embedded DataVolume namespace {found} differs from VM namespace {wanted}",
            f"spec.dataVolumeTemplates[{index}]",
        )
        for index, found in given
        if found and found != wanted
    ]


def check_changed_vm(old: Json, new: Json) -> list[Cause]:
    """Returns why virt-api refuses a change of a VM whose snapshot or restore is in progress."""
    before, after, status = (typed(dict, *each) or {} for each in ((old, "spec"), (new, "spec"), (new, "status")))
    starts = run_strategy(before) != run_strategy(after)
    if (restore := status.get("restoreInProgress")) and starts:
        message = f'Cannot update VM runStrategy until restore "{restore}" completes'
        return [Cause(message, "spec", "FieldValueNotSupported")]
    if snapshot := status.get("snapshotInProgress"):
        if at(before, "template", "spec", "volumes") != at(after, "template", "spec", "volumes"):
            message = f'Cannot update vm disks or volumes until snapshot "{snapshot}" completes'
            return [Cause(message, "spec", "FieldValueNotSupported")]
        if starts:
            message = f'Cannot update vm running state until snapshot "{snapshot}" completes'
            return [Cause(message, "spec", "FieldValueNotSupported")]
    return []


def check_snapshot(old: Json | None, new: Json, field: Literal["source", "target"]) -> list[Cause]:
    """Returns why virt-api refuses a VirtualMachineSnapshot with its source, or a VirtualMachineRestore with its
    target."""
    if old is not None:
        changed = old.get("spec") != new.get("spec")
        return [Cause("spec in immutable after creation", "spec")] if changed else []
    named = typed(dict, new, "spec", field) or {}
    if named.get("apiGroup") is None:
        return [Cause("missing apiGroup", f"spec.{field}.apiGroup")]
    if named["apiGroup"] != "kubevirt.io":
        return [Cause("invalid apiGroup", f"spec.{field}.apiGroup")]
    return [Cause("invalid kind", f"spec.{field}.kind")] if named.get("kind") != "VirtualMachine" else []


def check_new_vmi(vmi: Json, settings: ClusterSettings, *, by_kubevirt: bool) -> list[Cause]:
    spec = vmi.get("spec") or {}
    found = [*check_spec(spec, "spec", settings), *_volumes_without_disk(spec), *_memory_given(spec)]
    return found if by_kubevirt else [*found, *_labels(vmi["metadata"].get("labels"), "metadata", "creation")]


def check_changed_vmi(old: Json, new: Json, *, by_kubevirt: bool) -> list[Cause]:
    """Returns why virt-api refuses the change. Only KubeVirt may change the spec or the labels that it writes."""
    if by_kubevirt:
        return []
    if old.get("spec") != new.get("spec"):
        return [Cause("update of VMI object is restricted", type="FieldValueNotSupported")]
    before, after = (_restricted(typed(dict, each, "metadata", "labels")) for each in (old, new))
    if before != after:
        message = "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        return [Cause(message, type="FieldValueNotSupported")]
    return []


def _restricted(labels: Json | None) -> Json:
    return {key: value for key, value in (labels or {}).items() if key in RESTRICTED_LABELS}


def _labels(labels: Json | None, field: str, verb: str) -> Iterator[Cause]:
    if _restricted(labels):
        message = f"{verb} of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
        yield Cause(message, f"{field}.labels", "FieldValueNotSupported")


def _run_strategy(spec: Json) -> Iterator[Cause]:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        message = "Running and RunStrategy are mutually exclusive. Note that Running is deprecated"
        yield Cause(f"{message}, please use RunStrategy instead", "spec.running")
    if running is None and strategy is None:
        yield Cause("RunStrategy must be specified", "spec.running")
    if strategy is not None and strategy not in RUN_STRATEGIES:
        yield Cause(f"Invalid RunStrategy ({strategy})", "spec.runStrategy")


def _instance_type(spec: Json) -> Iterator[Cause]:
    """A field that an instance type decides must not be in the template."""
    if spec.get("instancetype") is None:
        return
    domain, path = at(spec, "template", "spec", "domain") or {}, "spec.template.spec.domain"
    fields: list[tuple[str, ...]] = [("cpu", "sockets"), ("cpu", "cores"), ("cpu", "threads"), ("memory", "guest")]
    fields += [("resources", kind, name) for kind in ("requests", "limits") for name in ("cpu", "memory")]
    if conflicts := ", ".join(".".join((path, *field)) for field in fields if at(domain, *field)):
        yield Cause(f"VM field(s) {conflicts} conflicts with selected instance type", conflicts)


def _data_volume_templates(spec: Json) -> Iterator[Cause]:
    volumes = at(spec, "template", "spec", "volumes") or ()
    used = {at(each, "dataVolume", "name") or at(each, "persistentVolumeClaim", "claimName") for each in volumes}
    for index, template in enumerate(spec.get("dataVolumeTemplates") or ()):
        field = f"spec.dataVolumeTemplate[{index}]"
        if cause := _data_volume(template, field):
            yield cause
        elif at(template, "metadata", "name") not in used:
            message = f"DataVolumeTemplate entry {field} must be referenced in the VMI template's 'volumes' list"
            yield Cause(message, field, type="FieldValueRequired")


def _data_volume(template: Json, field: str) -> Cause | None:
    """The first error of a template, as `validateDataVolume` of KubeVirt 1.8 finds it."""
    if not at(template, "metadata", "name"):
        message = f"'name' field must not be empty for DataVolumeTemplate entry {field}.name."
        return Cause(message, f"{field}.name", type="FieldValueRequired")
    spec = template.get("spec") or {}
    targets = [spec[key] for key in ("pvc", "storage") if spec.get(key) is not None]
    if not targets:
        return Cause("Missing Data volume PVC or Storage", f"{field}.PVC.Storage")
    if len(targets) > 1:
        message = "Duplicate storage definition, both target storage and target pvc defined"
        return Cause(message, f"{field}.PVC.Storage")
    populated = any(at(targets[0], key) is not None for key in ("dataSourceRef", "dataSource"))
    given = any(spec.get(key) is not None for key in ("source", "sourceRef"))
    if populated and given:
        return Cause("External population is incompatible with Source and SourceRef", f"{field}.source")
    if not populated and not given:
        message = "Data volume should have either Source, SourceRef, or be externally populated"
        return Cause(message, f"{field}.source.sourceRef")
    if (source := spec.get("source")) is None:
        return None
    sources = sum(value is not None for value in source.values())
    if sources == 1:
        return None
    return Cause("Multiple dataVolume sources" if sources else "Missing dataVolume valid source", f"{field}.source")


def _memory_given(spec: Json) -> Iterator[Cause]:
    domain = spec.get("domain") or {}
    memory = domain.get("memory") or {}
    if not (at(domain, "resources", "requests", "memory") or memory.get("guest") or memory.get("hugepages")):
        paths = "'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or"
        message = f"no memory requested, at least one of {paths} 'spec.domain.resources.requests.memory' must be set"
        yield Cause(message, type="FieldValueRequired")


def _volumes_without_disk(spec: Json) -> Iterator[Cause]:
    devices = at(spec, "domain", "devices") or {}
    named = {each.get("name") for kind in ("disks", "filesystems") for each in devices.get(kind) or ()}
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("name") not in named and volume.get("memoryDump") is None:
            field = f"spec.domain.volumes[{index}].name"
            yield Cause(f"{field} '{volume.get('name')}' not found.", field)
