"""Runs the `helm` command."""

from __future__ import annotations

import json
import os
import subprocess
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


def template(values: Json | None = None, *options: str) -> list[Json]:
    """Returns the rendered objects, including hooks."""
    done = run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *options, values=values)
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
