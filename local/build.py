"""The control plane from published Go modules: one program that is linked to under each component's name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from local.binaries import MODULE, PROGRAMS, Echo, Version, kubernetes_version, parse_version
from local.components import StackError
from local.logs import tail

PROGRAM = "controlplane"
SAY_EVERY_SECONDS = 15.0


def build(directory: Path, echo: Echo, module: Path = MODULE) -> None:
    """Build it into the directory, saying how far it is. Raises `Broken` with one line when Go can't."""
    check_go(module)
    directory.mkdir(parents=True, exist_ok=True)
    target, log = directory / f".{PROGRAM}.{os.getpid()}", directory / "build.log"
    echo(f"building the control plane {kubernetes_version(module)} from its Go modules; a few minutes, once")
    try:
        _run(command(target, module), module, log, echo)
        adopt(target, directory)
    finally:
        target.unlink(missing_ok=True)


def adopt(program: Path, directory: Path) -> None:
    """Make a directory of programs of the one that was built."""
    directory.mkdir(parents=True, exist_ok=True)
    program.chmod(0o755)
    program.replace(directory / PROGRAM)
    for name in (*PROGRAMS, "kubectl"):
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(PROGRAM)


def command(target: Path, module: Path = MODULE) -> list[str]:
    """Without these variables every client would be told that the server is v0.0.0."""
    version = kubernetes_version(module)
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    variables = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
    return ["go", "build", "-v", "-trimpath", "-ldflags", f"-s -w {variables}", "-o", str(target), "."]


def check_go(module: Path = MODULE) -> None:
    wanted = _wanted(module)
    install = f"install Go {wanted[0]}.{wanted[1]} or later, or set KUBEBUILDER_ASSETS to a control plane's programs"
    if shutil.which("go") is None:
        raise StackError(f"the control plane must be built and there is no Go: {install}")
    answer = subprocess.run(["go", "version"], cwd=module, capture_output=True, text=True, check=False)
    found = _go_version(answer.stdout)
    if found is None:
        raise StackError(f"`go version` fails ({answer.stderr.strip() or answer.stdout.strip()}): {install}")
    if found < wanted:
        raise StackError(f"Go {found[0]}.{found[1]} is too old to build the control plane: {install}")


def _wanted(module: Path) -> Version:
    found = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]), int(found[2])


def _go_version(text: str) -> Version | None:
    found = re.search(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else parse_version(text)


def _run(arguments: list[str], module: Path, log: Path, echo: Echo) -> None:
    """`go build -v` names each package that it has compiled, which is the only measure of progress there is."""
    # Without cgo it needs no C compiler. Nice, because it would take the machine for minutes.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, cwd=module, env=env, stdout=output, stderr=output)
    try:
        started = said = time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - said >= SAY_EVERY_SECONDS:
                said = time.monotonic()
                packages = sum(1 for line in log.read_text().splitlines() if not line.startswith("go: "))
                echo(f"  {said - started:.0f} s, {packages} packages compiled")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise StackError(f"the control plane could not be built; go's last words, from {log}:\n{tail(log)}")
