"""What is wrong with a warm pool though its schema is right: names, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator

from apimachinery.problem import Problem
from apimachinery.unstructured import Json, at, entries, typed
from kinds.checks.metadata import effective_name, is_label, label_problems
from kinds.checks.vm_template import template_label_problems, vm_problems, vm_warnings
from kinds.model import Rule
from kinds.validation import quoted

LONGEST_NAME = 56
"""VMs are called NAME-xxxxxx, which is their host name, at most 63 characters."""


MAC_SECONDS = 1800
"""An instance of EC2 that is a Mac has booted by then, mostly."""


def _name_fits(document: object) -> bool:
    name = effective_name(document)
    return name is None or (is_label(name) and len(name) <= LONGEST_NAME)


NAME_FITS = Rule(
    cel=f"self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= {LONGEST_NAME}",
    message="a pool's VMs are called NAME-xxxxxx, and these are host names: the name must have no dots and at most"
    f" {LONGEST_NAME} characters",
    holds=_name_fits,
    field=".metadata.name",
)


def template(document: Json) -> Iterator[Problem]:
    path = "spec.template"
    yield from template_label_problems(
        at(document, "spec", "template", "metadata", "labels"), f"{path}.metadata.labels"
    )
    yield from vm_problems(at(document, "spec", "template", "spec"), f"{path}.spec")


def placements(document: Json) -> Iterator[Problem]:
    instance = at(document, "spec", "template", "spec", "template", "spec")
    networks = {each.get("name") for _, each in entries(instance, "networks")} if instance is not None else None
    weights = []
    for index, placement in entries(document, "spec", "placements"):
        here = f"spec.placements[{index}]"
        weights.append(placement.get("weight", 1))
        yield from label_problems(placement.get("nodeSelector"), f"{here}.nodeSelector")
        for number, network in entries(placement, "networks"):
            name = network.get("name")
            if networks is not None and isinstance(name, str) and name not in networks:
                yield Problem(
                    f"{here}.networks[{number}].name",
                    f"there is no network {quoted(name)} in the template, in whose place it could be",
                )
    if weights and all(weight == 0 for weight in weights):
        yield Problem("spec.placements", "all weights are 0, so no VM could be made anywhere; give one at least 1")


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
    ):
        if _above(document, least, most):
            limit = at(document, "spec", *most)
            yield Problem(f"spec.{'.'.join(least)}", f"is more than spec.{'.'.join(most)}, which is {limit}")
    rolling = at(document, "spec", "updateStrategy", "rollingUpdate")
    if _nothing(at(rolling, "maxUnavailable")) and _nothing(at(rolling, "maxSurge") or 0):
        path = "spec.updateStrategy.rollingUpdate"
        yield Problem(path, "maxUnavailable and maxSurge are both 0, so nothing could ever be replaced")
    if at(document, "spec", "ec2") is not None:
        yield from _of_instances(document)


def _nothing(share: object) -> bool:
    return share in (0, "0%") and share is not False


def _of_instances(document: Json) -> Iterator[Problem]:
    if at(document, "spec", "standby", "mode") not in (None, "Running"):
        yield Problem("spec.standby.mode", "instances of EC2 wait Running only")
    for field in ("guestAgent", "conditions", "tcp", "http"):
        if at(document, "spec", "readiness", field):
            yield Problem(f"spec.readiness.{field}", "is for VMs; for instances of EC2 give spec.ec2.port")
    if at(document, "spec", "ec2", "protocol") == "GRPC" and at(document, "spec", "ec2", "port") is None:
        yield Problem("spec.ec2.port", "is missing; protocol GRPC needs the port of the agent")
    if at(document, "spec", "ec2", "secure") is True and at(document, "spec", "ec2", "protocol") != "GRPC":
        yield Problem("spec.ec2.secure", "is for protocol GRPC only")


def identical_machines(document: Json) -> Iterator[str]:
    if at(document, "spec", "template", "metadata", "name") is not None:
        yield "spec.template.metadata.name is not used: VMs are named after the pool"
    yield from vm_warnings(at(document, "spec", "template", "spec"), "spec.template.spec")


def idle(document: Json) -> Iterator[str]:
    hot, replicas = typed(int, document, "spec", "standby", "hotReplicas"), typed(int, document, "spec", "replicas")
    if hot and at(document, "spec", "standby", "mode") in (None, "Running"):
        yield "spec.standby.hotReplicas means nothing while standby.mode is Running: all are hot"
    elif hot and replicas is not None and hot > replicas:
        yield f"spec.standby.hotReplicas: {hot} are more than spec.replicas, which is {replicas}"
    if replicas == 0 and at(document, "spec", "claimPolicy", "onEmpty") == "Fail":
        yield "spec.replicas is 0 and claimPolicy.onEmpty Fail: every claim fails"


def impatient(document: Json) -> Iterator[str]:
    kind = at(document, "spec", "ec2", "instanceType") or "mac1.metal"
    if at(document, "spec", "ec2") is None or not str(kind).startswith("mac"):
        return
    given = typed(int, document, "spec", "readiness", "timeoutSeconds")
    seconds = 900 if given is None else given
    if seconds < MAC_SECONDS:
        yield (
            f"spec.readiness.timeoutSeconds: {seconds} is short for a Mac, which boots for up to 20 minutes and keeps"
            f" its host busy for an hour or more when it is given up; make it at least {MAC_SECONDS}"
        )


CHECKS = (template, placements, subnets, contradictions)
WARNINGS = (identical_machines, idle, impatient)
