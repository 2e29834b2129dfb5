"""Runs the examples of docs/python.md as a user of the wheel does: in an environment with the client alone."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from poolhouse.generate import distributions
from tests.docs.console_blocks import ROOT, matches

PAGE = ROOT / "docs" / "python.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 300


def install(directory: Path) -> Path:
    """Builds the wheel. Returns the Python of a new environment with the wheel, and with nothing but what it requires.

    The requirements are links to the distributions of this environment, so that a test downloads nothing. The wheel is
    built from a copy, because setuptools writes next to the sources."""
    distributions.write()
    source = directory / "source"
    shutil.copytree(ROOT / "client", source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=SECONDS)
    (site,) = directory.glob("lib/python*/site-packages")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=SECONDS)
    (info,) = site.glob("poolhouse_client-*.dist-info")
    for name in _closure(metadata.PathDistribution(info).requires or []):
        for path in {each.parts[0] for each in metadata.files(name) or () if ".." not in each.parts}:
            target = Path(str(metadata.distribution(name).locate_file(path)))
            if not (site / path).exists():
                (site / path).symlink_to(target)
    return directory / "bin" / "python"


def _closure(requirements: list[str]) -> Iterator[str]:
    seen, left = set[str](), list(requirements)
    while left:
        needed = Requirement(left.pop())
        if needed.name not in seen and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            seen.add(needed.name)
            yield needed.name
            left += metadata.requires(needed.name) or []


def run(python: Path, program: str, kubeconfig: Path | None = None) -> list[str]:
    """The output of the program. It has no environment, so that it finds nothing of this checkout."""
    environment = {"PATH": os.environ["PATH"], **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    done = subprocess.run(
        [str(python), "-I", "-c", program],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout.splitlines()


def differences(python: Path, kubeconfig: Path, stack: Path) -> list[str]:
    """The first example of the page that prints something else than the page shows. Later ones depend on it."""
    for program, shown in EXAMPLE.findall(PAGE.read_text()):
        printed = run(python, program.replace('stack=".poolhouse"', f"stack={str(stack)!r}"), kubeconfig)
        if not matches(tuple(shown.splitlines()), printed):
            return ["\n".join([program, "--- page", shown, "--- output", *printed])]
    return []
