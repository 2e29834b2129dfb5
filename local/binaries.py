"""Finds the control plane's programs, or downloads or builds them. The order:

1. the directory in $KUBEBUILDER_ASSETS, as in controller-runtime's tests;
2. PATH;
3. the cache, with the result of an earlier 4 or 5;
4. the releases of Kubernetes and etcd, where the internet is reachable;
5. a build of the Go module `controlplane`, which needs only Go and its module proxy.

Each source ends as a directory that holds the programs by name.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from local.components import StackError

MODULE = Path(__file__).parent / "controlplane"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
MINIMUM_VERSIONS = {
    # For ValidatingAdmissionPolicy, selectable fields and the CEL library of our schemas' rules.
    "kube-apiserver": (1, 31),
    "kube-controller-manager": (1, 31),
    "etcd": (3, 5),
}
MINIMUM_KUBECTL_VERSION = (1, 31)

Version = tuple[int, int]
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Programs:
    directory: Path
    origin: str
    """for people: where the programs come from"""

    def command(self, name: str) -> str:
        return str(self.directory / name)


def find_programs(
    echo: Echo, *, download: Callable[[Path, Echo], bool], build: Callable[[Path, Echo], None]
) -> Programs:
    """`download` returns whether it succeeded; `build` raises `StackError`."""
    for directory, origin in _installed():
        if not (why := why_unusable(directory)):
            return Programs(directory, origin)
        if any((directory / name).exists() for name in PROGRAMS):
            echo(f"not using the control plane of {origin}: {why}")
    cached = cache_dir() / cache_key()
    if all(os.access(cached / name, os.X_OK) for name in PROGRAMS):
        return Programs(cached, "the cache")
    if download(cached, echo):
        return Programs(cached, "Kubernetes' releases")
    build(cached, echo)
    return Programs(cached, "a local build")


def _installed() -> Iterator[tuple[Path, str]]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        yield Path(assets), "KUBEBUILDER_ASSETS"
    if found := shutil.which("kube-apiserver"):
        yield Path(found).parent, "PATH"


def why_unusable(directory: Path, version_of: Callable[[Path], Version | None] | None = None) -> str | None:
    """Why the programs in a directory cannot be used; None if they can."""
    version_of = version_of or program_version
    versions: dict[str, Version] = {}
    for name in PROGRAMS:
        version = version_of(directory / name)
        if version is None:
            return f"{name} is missing in {directory} or does not run"
        if version < MINIMUM_VERSIONS[name]:
            return f"{name} is {_dotted(version)}, and {_dotted(MINIMUM_VERSIONS[name])} is the minimum version"
        versions[name] = version
    apiserver, manager = versions["kube-apiserver"], versions["kube-controller-manager"]
    if apiserver != manager:
        return f"kube-apiserver is {_dotted(apiserver)} and kube-controller-manager {_dotted(manager)}"
    return None


def program_version(program: Path | str, *arguments: str) -> Version | None:
    """None if the program does not run."""
    command = [str(program), *(arguments or ("--version",))]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer)


def parse_version(text: str) -> Version | None:
    """The first version in a program's answer: `Kubernetes v1.34.4`, `etcd Version: 3.6.4`."""
    found = re.search(r"v?(\d+)\.(\d+)\.\d+", text)
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poolhouse" / "controlplane"


def cache_key(module: Path = MODULE) -> str:
    """Identifies a build of the module: its sources, its pinned dependencies and the architecture."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((module / name).read_bytes() + b"\0")
    return f"{kubernetes_version(module)}-{architecture()}-{digest.hexdigest()[:16]}"


def kubernetes_version(module: Path = MODULE) -> str:
    return required_version("k8s.io/kubernetes", module)


def etcd_version(module: Path = MODULE) -> str:
    return required_version("go.etcd.io/etcd/server/v3", module)


def required_version(package: str, module: Path) -> str:
    """The version of a Go package that the module requires."""
    found = re.search(rf"^\s*{re.escape(package)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StackError(f"{module / 'go.mod'} does not require {package}")
    return found[1]


def architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def link_kubectl(programs: Programs, target: Path) -> bool:
    """Links kubectl beside `poolhouse` if PATH has none or an old one; returns whether it did.

    Poolhouse itself does not use kubectl.
    """
    ours = programs.directory / "kubectl"
    if target.is_symlink() and target.resolve() != ours.resolve():
        target.unlink()
    if not ours.exists() or target.exists():
        return False
    others = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry) != target.parent]
    theirs = shutil.which("kubectl", path=os.pathsep.join(others))
    version = program_version(theirs, "version", "--client") if theirs else None
    if version and version > MINIMUM_KUBECTL_VERSION:
        return False
    target.symlink_to(ours)
    return True


def main() -> int:
    """`make setup` runs `python -m local.binaries`, so that the first `poolhouse up` need not wait for the programs."""
    from local.build import build
    from local.download import Releases

    try:
        programs = find_programs(lambda text: print(text, flush=True), download=Releases().download, build=build)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"control plane: {programs.directory} ({programs.origin})")
    if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
        print("linked kubectl beside poolhouse, because PATH has none newer than 1.31")
    return 0


if __name__ == "__main__":
    sys.exit(main())
