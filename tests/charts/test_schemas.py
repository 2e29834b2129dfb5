"""What the chart renders, held against the schemas of three Kubernetes minors, strictly:
no unknown field, no wrong type.

The schemas are those that Kubernetes publishes with its Go module; a minor that cannot be had is skipped, which the
report of a run says.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from local.binaries import kubernetes_version
from tests.charts.helm import template

Json = dict[str, Any]

MINORS = ("v1.33.5", kubernetes_version(), "v1.35.0")
OF_OTHERS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")


@functools.cache
def module(version: str) -> Path:
    if shutil.which("go") is None:
        pytest.skip("there is no Go to fetch the schemas with")
    with tempfile.TemporaryDirectory() as outside:
        fetched = subprocess.run(
            ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"],
            cwd=outside,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if fetched.returncode:
        pytest.skip(f"the module proxy has no k8s.io/kubernetes@{version}: {fetched.stdout[-300:]}")
    return Path(json.loads(fetched.stdout)["Dir"])


@functools.cache
def schemas(version: str, api_version: str) -> Json:
    group, _, number = api_version.rpartition("/")
    name = f"apis__{group}__{number}" if group else f"api__{number}"
    file = module(version) / "api" / "openapi-spec" / "v3" / f"{name}_openapi.json"
    found: Json = json.loads(file.read_text())["components"]["schemas"]
    return found


def wrong(value: Any, schema: Json, known: Json, path: str = "") -> list[str]:
    """What does not fit, each with its path."""
    if "allOf" in schema:
        return [each for part in schema["allOf"] for each in wrong(value, part, known, path)]
    if reference := schema.get("$ref"):
        return wrong(value, known[reference.rpartition("/")[2]], known, path)
    if "oneOf" in schema or "anyOf" in schema or not schema.get("type") or value is None:
        return []
    types: dict[str, tuple[type, ...]] = {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "integer": (int,),
        "boolean": (bool,),
        "number": (int, float),
    }
    kind = schema["type"]
    if not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{path}: {kind} is wanted, not {value!r}"]
    if kind == "array":
        return [e for i, item in enumerate(value) for e in wrong(item, schema["items"], known, f"{path}[{i}]")]
    if kind != "object":
        return []
    found = [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        within = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
        if within is None and "properties" in schema:
            found.append(f"{path}.{name} is no field")
        elif isinstance(within, dict):
            found += wrong(item, within, known, f"{path}.{name}")
    return found


@pytest.mark.parametrize("version", MINORS)
def test_every_object_is_what_kubernetes_knows(version: str) -> None:
    minor = version.removeprefix("v")
    held = 0
    for document in template({"global": {"priorityClassName": "system-cluster-critical"}}, "--kube-version", minor):
        if document["apiVersion"] in OF_OTHERS:
            continue
        known = schemas(version, document["apiVersion"])
        group, _, number = document["apiVersion"].rpartition("/")
        wanted = {"group": group, "version": number, "kind": document["kind"]}
        (schema,) = (each for each in known.values() if wanted in each.get("x-kubernetes-group-version-kind", ()))
        assert wrong(document, schema, known) == [], document["metadata"]["name"]
        held += 1
    assert held > 30


def test_a_wrong_object_is_told() -> None:
    known = schemas(kubernetes_version(), "v1")
    (schema,) = (each for name, each in known.items() if name.endswith(".core.v1.Service"))
    service = {"spec": {"ports": [{"port": "80"}], "selektor": {}}}
    assert wrong(service, schema, known) == [
        ".spec.ports[0].port: integer is wanted, not '80'",
        ".spec.selektor is no field",
    ]
