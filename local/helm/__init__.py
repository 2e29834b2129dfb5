"""The program `helm`, which installs our chart as users do: the machine's, else our cache's, else downloaded from its
releases, else built from the Go module in this directory. Only tests need it.
"""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from local.binaries import Echo, Version, architecture, cache_dir, kubernetes_version, parse_version
from local.build import check_go
from local.components import StackError
from local.download import DownloadFailed, fetch_verified, published_sha256
from local.logs import tail

MODULE = Path(__file__).parent
RELEASES = "https://get.helm.sh"
OLDEST: Version = (3, 14)
PACKAGE = "helm.sh/helm/v3"
BUILD_SECONDS = 1200


def find_helm(echo: Echo, *, build: Callable[[Path, Echo], None] | None = None) -> Path:
    """The program, made if need be. Raises `Broken` with what a person has to know."""
    if (found := shutil.which("helm")) and (has := _version(found)) and OLDEST <= has < (4, 0):
        return Path(found)
    kept = cache_dir().parent / "helm" / f"{version()}-{architecture()}" / "helm"
    if os.access(kept, os.X_OK):
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_name(f".helm.{os.getpid()}")
    try:
        if not download(draft, echo):
            (build or compile_)(draft, echo)
        draft.chmod(0o755)
        draft.replace(kept)
    finally:
        draft.unlink(missing_ok=True)
    return kept


def version(module: Path = MODULE) -> str:
    found = re.search(rf"^\s*{re.escape(PACKAGE)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StackError(f"{module / 'go.mod'} does not require {PACKAGE}")
    return found[1]


def download(target: Path, echo: Echo, releases: str = RELEASES) -> bool:
    """Whether it could be had from there."""
    if os.environ.get("POOLHOUSE_DOWNLOADS") == "never":
        return False
    name = f"{platform.system().lower()}-{architecture()}"
    url = f"{releases}/helm-{version()}-{name}.tar.gz"
    try:
        content = fetch_verified(url, published_sha256(f"{url}.sha256sum"))
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            member = tar.extractfile(f"{name}/helm")
            assert member is not None
            target.write_bytes(member.read())
    except (DownloadFailed, KeyError, tarfile.TarError) as reason:
        echo(f"Helm's releases are out of reach ({reason})")
        return False
    return True


def compile_(target: Path, echo: Echo) -> None:
    check_go(MODULE)
    echo(f"building Helm {version()} from its Go modules; a minute or two, once")
    log = target.parent / "build.log"
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    with log.open("wb") as output:
        built = subprocess.run(
            command(target), cwd=MODULE, env=env, stdout=output, stderr=output, timeout=BUILD_SECONDS, check=False
        )
    if built.returncode:
        raise StackError(f"Helm could not be built; go's last words, from {log}:\n{tail(log)}")


def command(target: Path) -> list[str]:
    """Without these variables a chart would be told that the cluster is Kubernetes 1.20."""
    major, minor = kubernetes_version().removeprefix("v").split(".")[:2]
    stamps = {f"{PACKAGE}/internal/version.version": version()}
    for package in ("chartutil", "lint/rules"):
        stamps |= {f"{PACKAGE}/pkg/{package}.k8sVersionMajor": major, f"{PACKAGE}/pkg/{package}.k8sVersionMinor": minor}
    variables = " ".join(f"-X {name}={value}" for name, value in stamps.items())
    return ["go", "build", "-trimpath", "-ldflags", f"-s -w {variables}", "-o", str(target), f"{PACKAGE}/cmd/helm"]


def _version(program: str) -> Version | None:
    try:
        answer = subprocess.run([program, "version", "--short"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stdout)
