"""Helm, as a person calls it."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from local.helm import find_helm

Json = dict[str, Any]

CHART = Path(__file__).resolve().parent.parent.parent / "charts" / "poolhouse"
RELEASE, NAMESPACE = "poolhouse", "poolhouse-system"


@cache
def program() -> str:
    return str(find_helm(lambda text: None))


def template(values: Json | None = None, *options: str) -> list[Json]:
    """The rendered chart, hooks included."""
    done = run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *options, values=values)
    return [document for document in yaml.load_all(done, yaml.CSafeLoader) if document]


class Refused(Exception):
    """With what Helm said."""


def run(*arguments: str, values: Json | None = None, kubeconfig: Path | None = None) -> str:
    """What it printed; raises `Refused`."""
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
        raise Refused(done.stderr)
    return done.stdout
