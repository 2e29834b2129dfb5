"""Builds Go programs, and says how far a build is."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from poolhouse.service.progress_bar import ProgressBar, time_left
from poolhouse.stack.components import Echo, StackError
from poolhouse.stack.status_file import tail

PROGRESS_SECONDS = 15.0
LIST_SECONDS = 300.0
"""limit for `go list`, which downloads the modules that the build needs"""
ESTIMATE_FROM = 0.05
"""share of the packages from which on the time left is estimated"""


def check_go(module: Path) -> None:
    """Raises `StackError` if Go is missing or too old for the module."""
    required = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert required is not None
    minimum = int(required[1]), int(required[2])
    install = f"install Go {minimum[0]}.{minimum[1]} or later, or set KUBEBUILDER_ASSETS to a control plane's programs"
    if shutil.which("go") is None:
        raise StackError(f"Go is missing to build the control plane: {install}")
    answer = subprocess.run(["go", "version"], cwd=module, capture_output=True, text=True, check=False)
    version = _go_version(answer.stdout)
    if version is None:
        raise StackError(f"`go version` fails ({answer.stderr.strip() or answer.stdout.strip()}): {install}")
    if version < minimum:
        raise StackError(f"Go {version[0]}.{version[1]} is too old to build the control plane: {install}")


def _go_version(text: str) -> tuple[int, int] | None:
    found = re.search(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def go_build(what: str, arguments: list[str], module: Path, log: Path, echo: Echo) -> None:
    """Runs `go build -v` and reports how many packages it has compiled. Raises `StackError`."""
    check_go(module)
    # A build without cgo needs no C compiler.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    total = count_packages(arguments[-1], module, env)
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, cwd=module, env=env, stdout=output, stderr=output)
    try:
        started = reported = time.monotonic()
        with ProgressBar(f"building {what}", total) as bar:
            while process.poll() is None:
                time.sleep(0.2)
                compiled = sum(1 for line in log.read_text().splitlines() if not line.startswith("go: "))
                seconds = time.monotonic() - started
                if total is not None:
                    bar.update(compiled, max(total, compiled))
                if not bar.visible and time.monotonic() - reported >= PROGRESS_SECONDS:
                    reported = time.monotonic()
                    echo(build_progress(seconds, compiled, total))
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise StackError(f"go failed to build {what}; the last lines of {log}:\n{tail(log)}")


def count_packages(pattern: str, module: Path, env: Mapping[str, str]) -> int | None:
    """The packages of a build with an empty cache, of which some may be in the cache. None if Go cannot list them."""
    try:
        listed = subprocess.run(
            ["go", "list", "-deps", pattern],
            cwd=module,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else None


def build_progress(seconds: float, compiled: int, total: int | None) -> str:
    """A line about a build, with an estimate of the time left once it is more than a guess."""
    if total is None or not compiled:
        return f"  {seconds:.0f} s, {compiled} packages compiled"
    left = time_left(seconds * (total - compiled) / compiled) if ESTIMATE_FROM * total <= compiled < total else ""
    return f"  {seconds:.0f} s, {compiled} of at most {total} packages compiled" + (f", {left}" if left else "")
