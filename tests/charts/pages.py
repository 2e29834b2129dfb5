"""What the documentation tells an administrator to type, typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.charts.helm import CHART, program

ROOT = CHART.parent.parent
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


def told(page: str, words: str) -> str:
    """The one block of commands on that page, or the one command within a line, that has these words."""
    text = (ROOT / "docs" / page).read_text()
    found = [each for each in BLOCK.findall(text) if words in each]
    found = found or [each for each in INLINE.findall(BLOCK.sub("", text)) if each.startswith(words)]
    assert len(found) == 1, (page, words, found)
    return str(found[0])


class Shell:
    """One in the repository's directory, with `kubectl` and with a `helm` that is given values besides."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._values = directory / "values.json"
        helm = directory / "helm"
        more = f"--timeout 10m --values {self._values}"
        helm.write_text(
            f'#!/bin/sh\ncase "$1" in install|upgrade) exec {program()} "$@" {more};; *) exec {program()} "$@";; esac\n'
        )
        helm.chmod(0o755)
        path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}

    def __call__(self, commands: str, values: str = "{}") -> str:
        """What they printed; each has to succeed."""
        self._values.write_text(values)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n--- it printed\n{done.stdout}"
        return done.stdout
