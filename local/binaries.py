"""The control plane's programs: found, downloaded or built, in this order:

1. the directory in $KUBEBUILDER_ASSETS, as controller-runtime's tests have it;
2. PATH;
3. our cache, from an earlier 4 or 5;
4. the releases of Kubernetes and etcd, where the internet is reachable;
5. the Go module beside this file, which needs only Go and its module proxy.

Every source ends as a directory that holds the programs by name.
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
    # ValidatingAdmissionPolicy, selectable fields and the CEL library of our schemas' rules.
    "kube-apiserver": (1, 31),
    "kube-controller-manager": (1, 31),
    "etcd": (3, 5),
}
MINIMUM_KUBECTL_VERSION = (1, 31)

Version = tuple[int, int]
Echo = Callable[[str], None]


@dataclass(frozen=True)
class Programs:
    """Where the three are, and whose they are (a sentence for people)."""

    directory: Path
    origin: str

    def command(self, name: str) -> str:
        return str(self.directory / name)


def find_programs(
    echo: Echo, *, download: Callable[[Path, Echo], bool], build: Callable[[Path, Echo], None]
) -> Programs:
    """The programs, made if need be. `download` says whether it could; `build` raises `Broken`."""
    for directory, origin in _installed():
        if complaint := why_unusable(directory):
            if any((directory / name).exists() for name in PROGRAMS):
                echo(f"not using the control plane of {origin}: {complaint}")
            continue
        return Programs(directory, origin)
    cached = cache_dir() / cache_key()
    if complete(cached):
        return Programs(cached, "the cache")
    if download(cached, echo):
        return Programs(cached, "Kubernetes' releases")
    build(cached, echo)
    return Programs(cached, "a build of our own")


def _installed() -> Iterator[tuple[Path, str]]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        yield Path(assets), "KUBEBUILDER_ASSETS"
    if found := shutil.which("kube-apiserver"):
        yield Path(found).parent, "PATH"


def complete(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in PROGRAMS)


def why_unusable(directory: Path, version_of: Callable[[Path], Version | None] | None = None) -> str | None:
    """Why the programs in a directory can't be used."""
    version_of = version_of or program_version
    versions: dict[str, Version] = {}
    for name in PROGRAMS:
        version = version_of(directory / name)
        if version is None:
            return f"{name} is missing in {directory} or does not run"
        if version < MINIMUM_VERSIONS[name]:
            return f"{name} is {_dotted(version)}, and {_dotted(MINIMUM_VERSIONS[name])} is the oldest that will do"
        versions[name] = version
    apiserver, manager = versions["kube-apiserver"], versions["kube-controller-manager"]
    if apiserver != manager:
        return f"kube-apiserver is {_dotted(apiserver)} and kube-controller-manager {_dotted(manager)}"
    return None


def program_version(program: Path) -> Version | None:
    return _ask([str(program), "--version"])


def kubectl_version(program: Path) -> Version | None:
    return _ask([str(program), "version", "--client"])


def _ask(command: list[str]) -> Version | None:
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
    """Names what the module would build: its sources, its pinned dependencies and the machine it is for."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((module / name).read_bytes() + b"\0")
    return f"{kubernetes_version(module)}-{architecture()}-{digest.hexdigest()[:16]}"


def kubernetes_version(module: Path = MODULE) -> str:
    return _required("k8s.io/kubernetes", module)


def etcd_version(module: Path = MODULE) -> str:
    return _required("go.etcd.io/etcd/server/v3", module)


def _required(name: str, module: Path) -> str:
    found = re.search(rf"^\s*{re.escape(name)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StackError(f"{module / 'go.mod'} does not require {name}")
    return found[1]


def architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def link_kubectl(programs: Programs, target: Path) -> bool:
    """Put kubectl beside `poolhouse` where the machine has none that is new enough; whether it did. It is a
    convenience for people: nothing of ours calls it."""
    here = programs.directory / "kubectl"
    theirs = shutil.which("kubectl", path=_path_without(target.parent))
    if target.is_symlink() and target.resolve() != here.resolve():
        target.unlink()
    if not here.exists() or target.exists():
        return False
    version = kubectl_version(Path(theirs)) if theirs else None
    if version and version > MINIMUM_KUBECTL_VERSION:
        return False
    target.symlink_to(here)
    return True


def _path_without(directory: Path) -> str:
    return os.pathsep.join(entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry) != directory)


def main() -> int:
    """`python -m local.binaries`: has the programs there before anyone needs them."""
    from local.build import build
    from local.download import Releases

    try:
        programs = find_programs(lambda text: print(text, flush=True), download=Releases().download, build=build)
    except StackError as broken:
        print(broken, file=sys.stderr)
        return 1
    link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl")
    print(f"control plane: {programs.origin}, {programs.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
