"""Finds, downloads or builds the program `helm`. Tests use Helm to install the chart as users do.

The sources, in order: PATH, the cache, a release from the internet, a build of the Go module in this directory.
"""

import io
import os
import platform
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from poolhouse.service.user_cache import cache_dir
from poolhouse.stack import binaries
from poolhouse.stack.components import Echo
from poolhouse.stack.go_build import go_build
from poolhouse.stack.lock import prepare_alone

MODULE = Path(__file__).parent
RELEASES = "https://get.helm.sh"
MINIMUM_VERSION: binaries.Version = (3, 14)
PACKAGE = "helm.sh/helm/v3"


def find_helm(echo: Echo, *, build: Callable[[Path, Echo], None] | None = None) -> Path:
    """Returns the path of the program. Raises `StackError`."""
    found = shutil.which("helm")
    if found and (has := binaries.program_version(found, "version", "--short")) and MINIMUM_VERSION <= has < (4, 0):
        return Path(found)
    cached = cache_dir() / "helm" / f"{version()}-{binaries.architecture()}" / "helm"
    if os.access(cached, os.X_OK):
        return cached
    with prepare_alone(cached.parent, "Helm", echo):
        if not os.access(cached, os.X_OK):
            cached.parent.mkdir(exist_ok=True)
            draft = cached.with_name(".helm.draft")
            if not download(draft, echo):
                (build or build_helm)(draft, echo)
            draft.chmod(0o755)
            draft.replace(cached)
    return cached


def version() -> str:
    return binaries.required_version(PACKAGE, MODULE)


def download(target: Path, echo: Echo, releases: str = RELEASES) -> bool:
    if os.environ.get("POOLHOUSE_DOWNLOADS") == "never":
        return False
    name = f"{platform.system().lower()}-{binaries.architecture()}"
    url = f"{releases}/helm-{version()}-{name}.tar.gz"
    try:
        content = binaries.fetch_verified(url, binaries.published_sha256(f"{url}.sha256sum"))
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            member = tar.extractfile(f"{name}/helm")
            assert member is not None
            target.write_bytes(member.read())
    except (binaries.DownloadFailed, KeyError, tarfile.TarError) as error:
        echo(f"Helm's releases cannot be reached ({error})")
        return False
    return True


def build_helm(target: Path, echo: Echo) -> None:
    echo(f"building Helm {version()} from its Go modules; this takes a minute or two, once")
    go_build("Helm", command(target), MODULE, target.parent / "build.log", echo)


def command(target: Path) -> list[str]:
    """Returns the build command. Without the linker's variables, Helm would render charts for Kubernetes 1.20."""
    major, minor = binaries.kubernetes_version().removeprefix("v").split(".")[:2]
    variables = {f"{PACKAGE}/internal/version.version": version()}
    for package in ("chartutil", "lint/rules"):
        variables[f"{PACKAGE}/pkg/{package}.k8sVersionMajor"] = major
        variables[f"{PACKAGE}/pkg/{package}.k8sVersionMinor"] = minor
    flags = " ".join(f"-X {name}={value}" for name, value in variables.items())
    return ["go", "build", "-v", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(target), f"{PACKAGE}/cmd/helm"]
