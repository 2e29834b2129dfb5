"""Checks the rendered objects against the OpenAPI schemas of three Kubernetes minors, without unknown fields.

The schemas come from the Go module k8s.io/kubernetes. Without the module of a minor, its test is skipped.
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

from poolhouse.stack.binaries import kubernetes_version
from tests.charts.helm import CHART, template

Json = dict[str, Any]

MINORS = ("v1.33.5", kubernetes_version(), "v1.35.0")
EXTERNAL = ("monitoring.coreos.com/v1", "cert-manager.io/v1")


@functools.cache
def module(version: str) -> Path:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: it downloads the schemas")
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


def problems(value: Any, schema: Json, known: Json, path: str = "") -> list[str]:
    """The differences from the schema, with their paths."""
    if "allOf" in schema:
        return [each for part in schema["allOf"] for each in problems(value, part, known, path)]
    if reference := schema.get("$ref"):
        return problems(value, known[reference.rpartition("/")[2]], known, path)
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
        return [f"{path}: must be {kind}, not {value!r}"]
    if kind == "array":
        return [e for i, item in enumerate(value) for e in problems(item, schema["items"], known, f"{path}[{i}]")]
    if kind != "object":
        return []
    found = [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        within = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
        if within is None and "properties" in schema:
            found.append(f"{path}.{name} is not a field")
        elif isinstance(within, dict):
            found += problems(item, within, known, f"{path}.{name}")
    return found


@pytest.mark.parametrize("version", MINORS)
def test_objects_match_the_schemas(version: str) -> None:
    minor = version.removeprefix("v")
    held = 0
    everything = ("--values", str(CHART / "ci" / "everything-values.yaml"))
    for document in template(None, *everything, "--kube-version", minor, chart=CHART):
        if document["apiVersion"] in EXTERNAL:
            continue
        known = schemas(version, document["apiVersion"])
        group, _, number = document["apiVersion"].rpartition("/")
        wanted = {"group": group, "version": number, "kind": document["kind"]}
        (schema,) = (each for each in known.values() if wanted in each.get("x-kubernetes-group-version-kind", ()))
        assert problems(document, schema, known) == [], document["metadata"]["name"]
        held += 1
    assert held > 30


def test_invalid_object_is_reported() -> None:
    known = schemas(kubernetes_version(), "v1")
    (schema,) = (each for name, each in known.items() if name.endswith(".core.v1.Service"))
    service = {"spec": {"ports": [{"port": "80"}], "selektor": {}}}
    assert problems(service, schema, known) == [
        ".spec.ports[0].port: must be integer, not '80'",
        ".spec.selektor is not a field",
    ]
