"""Warm pools and claims for tests. A test gives only the fields that matter to it."""

from __future__ import annotations

from typing import Any

from poolhouse.api.kinds.resource_types import CLAIMS, WARM_POOLS
from tests.builders import manifest, vmi_spec

Json = dict[str, Any]


def warm_machine(**instance: Any) -> Json:
    """A template's spec."""
    spec = vmi_spec({"root": {"containerDisk": {"image": "tiny"}}}, ["default"], "64Mi")
    return {"template": {"spec": {**spec, **instance}}}


def warm_pool(name: str = "web", **spec: Any) -> Json:
    return manifest(WARM_POOLS, name, {"template": {"spec": warm_machine()}, **spec})


def ec2_pool(*, spec: Json | None = None, **ec2: Any) -> Json:
    document = warm_pool("mac", ec2={"imageID": "ami-1", **ec2}, **(spec or {}))
    del document["spec"]["template"]
    return document


def claim(name: str = "mine", *, annotations: Json | None = None, **spec: Any) -> Json:
    return manifest(CLAIMS, name, spec, annotations=annotations)
