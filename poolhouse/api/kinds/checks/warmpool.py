"""Checks of a VirtualMachineWarmPool that its schema cannot express: names, and fields that contradict each other."""

from collections.abc import Iterator

from poolhouse.api.apimachinery.cron import cron_error, time_zone_error
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kinds.checks.metadata import label_problems, name_rule
from poolhouse.api.kinds.checks.vm_template import template_problems, template_warnings
from poolhouse.api.kinds.ec2 import is_reserved_tag
from poolhouse.api.kinds.validation import child_path, quoted

MAC_BOOT_SECONDS = 1800
"""Time within which most EC2 Mac instances boot."""

NAME_RULE = name_rule(
    56,
    "a pool's VMs are called NAME-xxxxxx, and these are host names: the name must have no dots and at most 56"
    " characters",
    label=True,
)


def placements(document: Json) -> Iterator[Problem]:
    vmi = at(document, "spec", "template", "spec", "template", "spec")
    names = [each.get("name") for _, each in entries(vmi, "networks")]
    networks = {name for name in names if isinstance(name, str)} if vmi is not None else None
    weights = []
    for index, placement in entries(document, "spec", "placements"):
        here = f"spec.placements[{index}]"
        weights.append(1 if placement.get("weight") is None else placement["weight"])
        yield from label_problems(placement.get("nodeSelector"), f"{here}.nodeSelector")
        for number, network in entries(placement, "networks"):
            name = network.get("name")
            if networks is not None and isinstance(name, str) and name not in networks:
                yield Problem(
                    f"{here}.networks[{number}].name",
                    f"there is no network {quoted(name)} in the template that it could replace",
                )
    if weights and all(weight == 0 for weight in weights):
        yield Problem("spec.placements", "all weights are 0, so no VM can be created; give one at least 1")


def subnets(document: Json) -> Iterator[Problem]:
    given = at(document, "spec", "ec2", "subnets")
    seen: dict[str, int] = {}
    for index, subnet in enumerate(given if isinstance(given, list) else ()):
        if isinstance(subnet, str) and seen.setdefault(subnet, index) != index:
            yield Problem(f"spec.ec2.subnets[{index}]", f"is spec.ec2.subnets[{seen[subnet]}] again; remove it")


def _above(document: Json, least: tuple[str, ...], most: tuple[str, ...]) -> bool:
    low, high = typed(int, document, "spec", *least), typed(int, document, "spec", *most)
    return low is not None and high is not None and low > high


def contradictions(document: Json) -> Iterator[Problem]:
    for least, most in (
        (("refill", "backoffSeconds"), ("refill", "maxBackoffSeconds")),
        (("claimPolicy", "defaultTTLSeconds"), ("claimPolicy", "maxTTLSeconds")),
        (("replicas",), ("maxTotal",)),
        (("autoscaling", "minReplicas"), ("autoscaling", "maxReplicas")),
        (("autoscaling", "maxReplicas"), ("maxTotal",)),
    ):
        if _above(document, least, most):
            limit = at(document, "spec", *most)
            yield Problem(f"spec.{'.'.join(least)}", f"is more than spec.{'.'.join(most)}, which is {limit}")
    rolling = at(document, "spec", "updateStrategy", "rollingUpdate")
    if _is_zero(at(rolling, "maxUnavailable")) and _is_zero(at(rolling, "maxSurge") or 0):
        path = "spec.updateStrategy.rollingUpdate"
        yield Problem(path, "maxUnavailable and maxSurge are both 0, so no VM can be replaced")
    if at(document, "spec", "ec2") is not None:
        yield from _ec2_problems(document)


def autoscaling(document: Json) -> Iterator[Problem]:
    given, here = at(document, "spec", "autoscaling"), "spec.autoscaling"
    most = typed(int, given, "maxReplicas")
    for index, period in entries(given, "schedules"):
        path = f"{here}.schedules[{index}]"
        cron, least = period.get("schedule"), period.get("minReplicas")
        if isinstance(cron, str) and (why := cron_error(cron)):
            yield Problem(f"{path}.schedule", why)
        yield from _time_zone(period, path)
        if isinstance(least, int) and most is not None and least > most:
            yield Problem(f"{path}.minReplicas", f"is more than {here}.maxReplicas, which is {most}")
    hours, least = typed(int, given, "maxIdleVMHoursPerDay"), typed(int, given, "minReplicas")
    if hours is not None and least is not None and 24 * least > hours:
        message = f"is too low: minReplicas alone wait for {24 * least} hours a day; lower minReplicas or raise this"
        yield Problem(f"{here}.maxIdleVMHoursPerDay", message)


def _time_zone(given: object, path: str) -> Iterator[Problem]:
    name = at(given, "timeZone")
    if isinstance(name, str) and (why := time_zone_error(name)):
        yield Problem(f"{path}.timeZone", why)


def unpausable(document: Json) -> Iterator[Problem]:
    probe = at(document, "spec", "template", "spec", "template", "spec", "livenessProbe")
    paused = at(document, "spec", "standby", "mode") == "Paused"
    if paused and isinstance(probe, dict) and probe.get("guestAgentPing") is None:
        message = (
            "KubeVirt pauses no VM with a liveness probe other than guestAgentPing (before 1.8: with any probe):"
            " change it, or standby.mode"
        )
        yield Problem("spec.template.spec.template.spec.livenessProbe", message)


def _is_zero(share: object) -> bool:
    return share in (0, "0%") and share is not False


def _ec2_problems(document: Json) -> Iterator[Problem]:
    if at(document, "spec", "standby", "mode") not in (None, "Running"):
        yield Problem("spec.standby.mode", "EC2 instances wait Running only")
    for field in ("guestAgent", "conditions", "tcp", "http"):
        if at(document, "spec", "readiness", field):
            yield Problem(f"spec.readiness.{field}", "is for VMs; for EC2 instances give spec.ec2.port")
    if at(document, "spec", "ec2", "protocol") == "GRPC" and at(document, "spec", "ec2", "port") is None:
        yield Problem("spec.ec2.port", "is missing; protocol GRPC needs the port of the agent")
    given = at(document, "spec", "ec2", "tags")
    for key in given if isinstance(given, dict) else ():
        if isinstance(key, str) and is_reserved_tag(key):
            yield Problem(child_path("spec.ec2.tags", key), "is set by AWS or by the controllers; choose another name")
    host, tenancy = (at(document, "spec", "ec2", "placement", field) for field in ("hostID", "tenancy"))
    if host is not None and tenancy not in (None, "host"):
        yield Problem("spec.ec2.placement.tenancy", f"is {quoted(tenancy)}, and hostID needs host; leave it out")
    if at(document, "spec", "ec2", "secure") is True and at(document, "spec", "ec2", "protocol") != "GRPC":
        yield Problem("spec.ec2.secure", "is for protocol GRPC only")


def ineffective_fields(document: Json) -> Iterator[str]:
    hot, replicas = typed(int, document, "spec", "standby", "hotReplicas"), typed(int, document, "spec", "replicas")
    if hot and at(document, "spec", "standby", "mode") in (None, "Running"):
        yield "spec.standby.hotReplicas has no effect while standby.mode is Running: all are hot"
    elif hot and replicas is not None and hot > replicas:
        yield f"spec.standby.hotReplicas: {hot} are more than spec.replicas, which is {replicas}"
    autoscaled = at(document, "spec", "autoscaling")
    if replicas == 0 and not autoscaled and at(document, "spec", "claimPolicy", "onEmpty") == "Fail":
        yield "spec.replicas is 0 and claimPolicy.onEmpty Fail: every claim fails"


def tracking_without_effect(document: Json) -> Iterator[str]:
    disks = [entry for _, entry in entries(document, "spec", "template", "spec", "dataVolumeTemplates")]
    tracks = at(document, "spec", "updateStrategy", "trackDataSources") is True
    if tracks and not any(at(disk, "spec", "sourceRef") for disk in disks):
        yield "spec.updateStrategy.trackDataSources: no entry of dataVolumeTemplates has a sourceRef"


def short_timeout(document: Json) -> Iterator[str]:
    kind = at(document, "spec", "ec2", "instanceType") or "mac1.metal"
    if at(document, "spec", "ec2") is None or not str(kind).startswith("mac"):
        return
    given = typed(int, document, "spec", "readiness", "timeoutSeconds")
    seconds = 900 if given is None else given
    if seconds < MAC_BOOT_SECONDS:
        yield (
            f"spec.readiness.timeoutSeconds: {seconds} is short for a Mac, which boots for up to 20 minutes and keeps"
            f" its host busy for an hour after it is deleted; make it at least {MAC_BOOT_SECONDS}"
        )


CHECKS = (template_problems, placements, subnets, contradictions, autoscaling, unpausable)
WARNINGS = (template_warnings, ineffective_fields, tracking_without_effect, short_timeout)
