"""A template that many VMs are made from: tried at admission as the one VM that it would become first.

Whoever writes a template must be allowed to create what it makes, or a pool would be a way round one's own rights. And
what is wrong with the VM is told now, at the path in the template, instead of by a thousand failed creations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apimachinery.problem import Problem
from apimachinery.unstructured import at
from kinds.warmpool import WARM_POOL
from runtime.resource import VMIS, VMS, Resource
from webhook.patch import same
from webhook.review import AdmissionRequest

Json = dict[str, Any]


EC2_INSTANCES = Resource(WARM_POOL.group, WARM_POOL.versions[0], "ec2instances", "EC2Instance")
"""No API server has them: the right to create them is the right to have machines paid for, with an instance profile."""


@dataclass(frozen=True)
class Template:
    path: tuple[str, ...]
    makes: Resource
    adds: Mapping[str, Any] = field(default_factory=dict)
    """what a controller puts into the VM's spec and the template must leave out"""

    @property
    def can_be_tried(self) -> bool:
        return self.makes is not EC2_INSTANCES


TEMPLATES: Mapping[str, tuple[Template, ...]] = {
    "VirtualMachinePool": (Template(("spec", "template"), VMS),),
    "VirtualMachineWarmPool": (
        Template(("spec", "template"), VMS, {"runStrategy": "Always"}),
        Template(("spec", "ec2"), EC2_INSTANCES),
    ),
    "VirtualMachineInstanceReplicaSet": (Template(("spec", "template"), VMIS),),
}


def changed_template(request: AdmissionRequest) -> Template | None:
    """The template, where this request brings a new one."""
    for template in TEMPLATES.get(request.kind, ()):
        given = at(request.object, *template.path)
        if isinstance(given, dict) and not same(given, at(request.old, *template.path)):
            return template
    return None


def vm_of(request: AdmissionRequest, template: Template) -> Json:
    """The VM, under a name that is free."""
    given = at(request.object, *template.path)
    metadata = {key: value for key in ("labels", "annotations") if (value := at(given, "metadata", key))}
    named = {"generateName": f"{request.name or 'pool'}-", "namespace": request.namespace}
    return {
        "apiVersion": template.makes.api_version,
        "kind": template.makes.kind,
        "metadata": {**metadata, **named},
        "spec": {**(given.get("spec") or {}), **template.adds},
    }


def at_template(template: Template, problem: Problem) -> Problem:
    """The same problem, told to the one who wrote the template."""
    return Problem(".".join((*template.path, problem.path) if problem.path else template.path), problem.message)
