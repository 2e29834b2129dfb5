"""Runs commands of the documentation."""

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


def documented_command(page: str, words: str) -> str:
    """The only block of the page that contains the words, or the only inline command that begins with them."""
    text = (ROOT / "docs" / page).read_text()
    found = [each for each in BLOCK.findall(text) if words in each]
    found = found or [each for each in INLINE.findall(BLOCK.sub("", text)) if each.startswith(words)]
    assert len(found) == 1, (page, words, found)
    return str(found[0])


class Shell:
    """Runs commands in the repository, with `kubectl` and with a `helm` to which it adds values and a timeout."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._values = directory / "values.json"
        helm = directory / "helm"
        options = f"--timeout 10m --values {self._values}"
        helm.write_text(
            f'#!/bin/sh\ncase "$1" in install|upgrade) set -- "$@" {options};; esac\nexec {program()} "$@"\n'
        )
        helm.chmod(0o755)
        path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}

    def __call__(self, commands: str, values: str = "{}") -> str:
        """Returns the output. Every command must succeed."""
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
        assert done.returncode == 0, f"{commands}\n--- output\n{done.stdout}"
        return done.stdout
