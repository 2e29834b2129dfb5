"""Checks of a VirtualMachinePool that its schema cannot express."""

from collections.abc import Iterator

from poolhouse.api.apimachinery.cron import cron_error, time_zone_error
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds.checks.metadata import (
    booleans_to_text,
    effective_name,
    is_label,
    is_label_key,
    selector_problems,
)
from poolhouse.api.kinds.checks.vm_template import template_problems, template_warnings
from poolhouse.api.kinds.model import Rule
from poolhouse.api.kinds.node_groups import read_limits
from poolhouse.api.kinds.validation import quoted

_MAX_NAME_LENGTH = 63
_MAX_REPLICAS = 2**31 - 1
_STRATEGIES = (("scaleInStrategy", "proactive"), ("updateStrategy", "proactive"))


def _vm_names_are_labels(document: object) -> bool:
    name, replicas = effective_name(document), typed(int, document, "spec", "replicas")
    if name is None:
        return True
    ordinal = min(max(replicas or 0, 1), _MAX_REPLICAS)
    return is_label(name) and len(f"{name}-{ordinal}") <= _MAX_NAME_LENGTH


NAME_RULE = Rule(
    cel="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && "
    "self.metadata.name.size() + 1 + string(self.spec.replicas).size() <= 63",
    message="a pool's VMs are called NAME-1, NAME-2, ... and these are host names: the name must have no dots, and with"
    " '-' and the highest number it must have at most 63 characters",
    holds=_vm_names_are_labels,
    field=".metadata.name",
)


def _policies(document: Json) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    for strategy in _STRATEGIES:
        path = ("spec", *strategy, "selectionPolicy", "orderedPolicies")
        for index, policy in entries(document, *path):
            yield (*path, index), policy


def ordered_policies(document: Json) -> Iterator[Problem]:
    for (*path, index), policy in _policies(document):
        yield from selector_problems(policy.get("labelSelector"), f"{'.'.join(map(str, path))}[{index}].labelSelector")


def check_names(document: Json) -> Iterator[Problem]:
    path = ("spec", "updateStrategy", "proactive", "analysis", "checks")
    seen = set[str]()
    for index, check in entries(document, *path):
        name = check.get("name")
        if isinstance(name, str):
            if name in seen:
                message = f"{name!r} is the name of an earlier check; give another"
                yield Problem(f"{'.'.join(path)}[{index}].name", message)
            seen.add(name)


def disks_to_preserve(document: Json) -> Iterator[str]:
    if any(entries(document, "spec", "template", "spec", "dataVolumeTemplates")):
        return
    for strategy in ("opportunistic", "proactive"):
        if at(document, "spec", "scaleInStrategy", strategy, "statePreservation") == "Offline":
            yield (
                f"spec.scaleInStrategy.{strategy}.statePreservation: Offline keeps disks of dataVolumeTemplates, "
                "and the template has none"
            )


_PROACTIVE = ("spec", "updateStrategy", "proactive")


def replacement(document: Json) -> Iterator[Problem]:
    """Fields that contradict the replacement of VMs or disks by an update."""
    update, here = at(document, *_PROACTIVE), ".".join(_PROACTIVE)
    if at(update, "maxSurge") is not None:
        yield from _surge(document, update, f"{here}.maxSurge")
    migrates = at(document, "spec", "template", "spec", "updateVolumesStrategy") == "Migration"
    if at(update, "replacePolicy") == "Recreate" and migrates:
        yield Problem(
            "spec.template.spec.updateVolumesStrategy",
            f"with Migration, KubeVirt copies the old disk onto the new one; leave it out, or {here}.replacePolicy",
        )


def _surge_names(document: Json, update: Json, path: str) -> Iterator[Problem]:
    """The VMs that are created before others are deleted have higher numbers, and so perhaps longer names."""
    name, replicas, surge = effective_name(document), typed(int, document, "spec", "replicas"), at(update, "maxSurge")
    if name is None or not replicas or not 0 < replicas <= _MAX_REPLICAS:
        return
    percent = typed(str, update, "maxSurge")
    if percent is not None and percent.removesuffix("%").isdecimal():
        surge = -(-int(percent.removesuffix("%")) * replicas // 100)
    if not isinstance(surge, int) or isinstance(surge, bool) or len(f"{name}-{replicas}") > _MAX_NAME_LENGTH:
        return
    highest = f"{name}-{replicas + min(surge, replicas)}"
    if len(highest) > _MAX_NAME_LENGTH:
        yield Problem(
            path,
            f"the VM {highest} that it adds would have a name of {len(highest)} characters, and a host name has at most"
            f" {_MAX_NAME_LENGTH}; leave it out, or give the pool a shorter name",
        )


def _surge(document: Json, update: Json, path: str) -> Iterator[Problem]:
    if at(update, "replacePolicy") == "Recreate":
        yield Problem(
            path,
            "replaces VMs by VMs of other names, and replacePolicy: Recreate keeps their names; leave one of them out",
        )
    if at(update, "snapshotBeforeUpdate") is True:
        yield Problem(path, "a VM that is replaced needs no snapshot; leave it out, or snapshotBeforeUpdate")
    for name, kind in (("Secret", "Secrets"), ("ConfigMap", "ConfigMaps")):
        field = f"appendPostfixTo{name}References"
        if at(document, "spec", "nameGeneration", field) is True:
            message = f"VMs above `replicas` would need {kind} of their own; leave it out, or nameGeneration.{field}"
            yield Problem(path, message)
    yield from _surge_names(document, update, path)
    scale_in = at(document, "spec", "scaleInStrategy")
    for strategy in ("unmanaged", "opportunistic"):
        if at(scale_in, strategy) is not None:
            yield Problem(path, f"the pool must delete old VMs; use scaleInStrategy.proactive, not {strategy}")
    if at(scale_in, "proactive", "statePreservation") == "Offline":
        yield Problem(
            path,
            "the disks of a deleted VM return to the next VM of its name with scaleInStrategy.proactive."
            "statePreservation: Offline, so a new VM would get old disks; leave one of them out",
        )


def without_effect(document: Json) -> Iterator[str]:
    update, here = at(document, *_PROACTIVE), ".".join(_PROACTIVE)
    disks = [entry for _, entry in entries(document, "spec", "template", "spec", "dataVolumeTemplates")]
    if at(update, "replacePolicy") == "Recreate" and not disks:
        yield f"{here}.replacePolicy: Recreate gives VMs new disks of dataVolumeTemplates, and the template has none"
    if at(update, "trackDataSources") is True:
        if not any(at(disk, "spec", "sourceRef") for disk in disks):
            yield f"{here}.trackDataSources: no entry of dataVolumeTemplates has a sourceRef"
        elif at(update, "replacePolicy") != "Recreate" and at(update, "maxSurge") is None:
            yield (
                f"{here}.trackDataSources: only new VMs get a new image, and the condition DisksOutdated names the "
                "others; with replacePolicy: Recreate or maxSurge the pool replaces their disks"
            )


def maintenance_windows(document: Json) -> Iterator[Problem]:
    for index, window in entries(document, "spec", "maintenanceWindows"):
        schedule, zone = (typed(str, window, field) for field in ("schedule", "timeZone"))
        path = f"spec.maintenanceWindows[{index}]"
        if schedule and (error := cron_error(schedule)):
            yield Problem(f"{path}.schedule", error)
        if zone and (error := time_zone_error(zone)):
            yield Problem(f"{path}.timeZone", error)


def topology_key(document: Json) -> Iterator[Problem]:
    key = typed(str, document, "spec", "failureDomains", "topologyKey")
    if key and not is_label_key(key):
        message = f"must be the key of a label, such as topology.kubernetes.io/zone, not {quoted(key)}"
        yield Problem("spec.failureDomains.topologyKey", message)


def limits_without_disks(document: Json) -> Iterator[str]:
    spec = typed(dict, document, "spec")
    kept = any(
        at(spec, "scaleInStrategy", each, "statePreservation") == "Offline" for each in ("opportunistic", "proactive")
    )
    replaced = at(spec, "updateStrategy", "proactive", "replacePolicy") == "Recreate"
    if at(spec, "retainedDisks") and not (kept or replaced):
        yield "spec.retainedDisks: without statePreservation: Offline or replacePolicy: Recreate, no disk is retained"


def windows_for_healing(document: Json) -> Iterator[str]:
    waits = at(document, "spec", "autohealing", "onlyInMaintenanceWindows") is True
    if waits and not any(entries(document, "spec", "maintenanceWindows")):
        yield "spec.autohealing.onlyInMaintenanceWindows: healing does not wait, as the pool has no maintenanceWindows"


def node_group(document: Json) -> Iterator[str]:
    annotations = typed(dict, document, "metadata", "annotations") or {}
    problem = read_limits({name: text for name, text in annotations.items() if isinstance(text, str)}, None)
    if isinstance(problem, str):
        yield f"the pool is no node group of the cluster-autoscaler: {problem}"


def normalize(document: Json) -> Json:
    for path, _ in _policies(document):
        document = booleans_to_text(document, *path, "labelSelector", "matchLabels")
    return document


CHECKS = (ordered_policies, check_names, maintenance_windows, topology_key, template_problems, replacement)
WARNINGS = (
    template_warnings,
    disks_to_preserve,
    without_effect,
    windows_for_healing,
    limits_without_disks,
    node_group,
)
