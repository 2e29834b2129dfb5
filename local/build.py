"""Builds Go programs from published modules: the control plane as one program that is linked under each name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from local.binaries import MODULE, PROGRAMS, Echo, Version, kubernetes_version, parse_version
from local.components import StackError
from local.status_file import tail

PROGRAM = "controlplane"
PROGRESS_SECONDS = 15.0


def build(directory: Path, echo: Echo, module: Path = MODULE) -> None:
    """Builds the control plane into the directory. Raises `StackError`."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f".{PROGRAM}.{os.getpid()}"
    echo(f"building the control plane {kubernetes_version(module)} from its Go modules; this takes minutes, once")
    try:
        go_build("the control plane", command(target, module), module, directory / "build.log", echo)
        link_programs(target, directory)
    finally:
        target.unlink(missing_ok=True)


def link_programs(program: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    program.chmod(0o755)
    program.replace(directory / PROGRAM)
    for name in (*PROGRAMS, "kubectl"):
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(PROGRAM)


def command(target: Path, module: Path = MODULE) -> list[str]:
    """Without the linker's variables the API server would report version v0.0.0."""
    version = kubernetes_version(module)
    major, minor = version.removeprefix("v").split(".")[:2]
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return ["go", "build", "-v", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(target), "."]


def check_go(module: Path = MODULE) -> None:
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


def _go_version(text: str) -> Version | None:
    found = re.search(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else parse_version(text)


def go_build(what: str, arguments: list[str], module: Path, log: Path, echo: Echo) -> None:
    """Runs `go build -v`, which logs each compiled package, and reports the progress. Raises `StackError`."""
    check_go(module)
    # Without cgo, no C compiler is needed.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, cwd=module, env=env, stdout=output, stderr=output)
    try:
        started = reported = time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - reported >= PROGRESS_SECONDS:
                reported = time.monotonic()
                packages = sum(1 for line in log.read_text().splitlines() if not line.startswith("go: "))
                echo(f"  {reported - started:.0f} s, {packages} packages compiled")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise StackError(f"go failed to build {what}; the last lines of {log}:\n{tail(log)}")
