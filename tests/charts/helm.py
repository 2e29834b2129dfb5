"""Runs the `helm` command."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from poolhouse.stack.helm import find_helm

Json = dict[str, Any]

CHART = Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse"
RELEASE, NAMESPACE = "poolhouse", "poolhouse-system"


@cache
def program() -> str:
    return str(find_helm(lambda text: None))


@cache
def without_schemas() -> Path:
    """A copy of the chart. Its CRDs have no fields, because those take more time to render than everything else."""
    directory = tempfile.TemporaryDirectory(prefix="poolhouse-chart-")
    atexit.register(directory.cleanup)
    chart = shutil.copytree(CHART, Path(directory.name) / CHART.name)
    for file in (chart / "generated" / "crds").iterdir():
        crd = yaml.load(file.read_text(), yaml.CSafeLoader)
        for version in crd["spec"]["versions"]:
            version["schema"] = {"openAPIV3Schema": {"type": "object"}}
        file.write_text(json.dumps(crd))
    return chart


def template(values: Json | None = None, *options: str, chart: Path | None = None) -> list[Json]:
    """Returns the rendered objects, including hooks. The schemas of CRDs are only in those of a given chart."""
    arguments = (RELEASE, str(chart or without_schemas()), "--namespace", NAMESPACE, *options)
    done = run("template", *arguments, values=values)
    return [document for document in yaml.load_all(done, yaml.CSafeLoader) if document]


class HelmError(Exception):
    """Its text is the error output of Helm."""


def run(*arguments: str, values: Json | None = None, kubeconfig: Path | None = None) -> str:
    """Returns the output, or raises `HelmError`."""
    given = ("--values", "-") if values is not None else ()
    done = subprocess.run(
        [program(), *arguments, *given],
        input=json.dumps(values or {}),
        env={**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout
