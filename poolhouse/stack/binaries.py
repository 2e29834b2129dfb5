"""Finds, downloads or builds the programs of the control plane. It tries these sources in order:

1. the directory in $KUBEBUILDER_ASSETS, as in controller-runtime's tests;
2. PATH;
3. the cache, which keeps the programs of an earlier download or build;
4. a download of the releases of Kubernetes and etcd;
5. a build of the Go module `controlplane`, which needs Go and access to its module proxy.

Each source provides a directory with a file for each program.
"""

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from poolhouse.api.kubevirt.versions import dotted
from poolhouse.service.user_cache import cache_dir
from poolhouse.stack.components import Echo, StackError
from poolhouse.stack.go_build import go_build
from poolhouse.stack.lock import prepare_alone

MODULE = Path(__file__).parent / "controlplane"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
"""programs that each stack needs"""
SCHEDULER = "kube-scheduler"
"""program that only a stack with a virtual node needs"""
BUILT = (*PROGRAMS, SCHEDULER, "kubectl")
"""parts of the Go program"""
MINIMUM_VERSIONS = {
    # Poolhouse needs ValidatingAdmissionPolicy, selectable fields and the CEL library of its schemas' rules.
    "kube-apiserver": (1, 31),
    "kube-controller-manager": (1, 31),
    SCHEDULER: (1, 31),
    "etcd": (3, 5),
}
MINIMUM_KUBECTL_VERSION = (1, 31)
PROGRAM = "controlplane"
KUBERNETES = "https://dl.k8s.io/release"
ETCD = "https://github.com/etcd-io/etcd/releases/download"
# The limit for a connection is short, so that a machine without internet access waits seconds and not minutes.
CONNECT_SECONDS = 4.0
READ_SECONDS = 30.0

Version = tuple[int, int]


@dataclass(frozen=True)
class Programs:
    directory: Path
    origin: str
    """source of the programs, for messages"""

    def command(self, name: str) -> str:
        return str(self.directory / name)


def find_programs(
    echo: Echo,
    *,
    needed: tuple[str, ...] = PROGRAMS,
    download: Callable[[Path, Echo], bool] | None = None,
    build: Callable[[Path, Echo], None] | None = None,
) -> Programs:
    """Tries the sources in order. `download` returns whether it succeeded; `build` raises `StackError`."""
    download, build = download or Releases().download, build or build_programs
    for directory, origin in _installed():
        if not (why := why_unusable(directory, needed=needed)):
            return Programs(directory, origin)
        if any((directory / name).exists() for name in needed):
            echo(f"not using the control plane of {origin}: {why}")
    cached = cache_dir() / "controlplane" / cache_key()
    if _holds(cached, needed):
        return Programs(cached, "the cache")
    with prepare_alone(cached, "the control plane", echo):
        if _holds(cached, needed):
            return Programs(cached, "the cache")
        if download(cached, echo):
            return Programs(cached, "Kubernetes' releases")
        build(cached, echo)
        return Programs(cached, "a local build")


def _holds(directory: Path, needed: Iterable[str]) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in needed)


def _installed() -> Iterator[tuple[Path, str]]:
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        yield Path(assets), "KUBEBUILDER_ASSETS"
    if found := shutil.which("kube-apiserver"):
        yield Path(found).parent, "PATH"


def why_unusable(
    directory: Path,
    version_of: Callable[[Path], Version | None] | None = None,
    needed: tuple[str, ...] = PROGRAMS,
) -> str | None:
    """Returns why the programs in a directory cannot be used; None if they are usable."""
    version_of = version_of or program_version
    versions: dict[str, Version] = {}
    for name in needed:
        version = version_of(directory / name)
        if version is None:
            return f"{name} is missing in {directory} or does not run"
        if version < MINIMUM_VERSIONS[name]:
            return f"{name} is {dotted(version)}, and {dotted(MINIMUM_VERSIONS[name])} is the minimum version"
        versions[name] = version
    apiserver = versions["kube-apiserver"]
    for name in needed:
        if name.startswith("kube-") and versions[name] != apiserver:
            return f"kube-apiserver is {dotted(apiserver)} and {name} {dotted(versions[name])}"
    return None


def program_version(program: Path | str, *arguments: str) -> Version | None:
    """Returns the version that the program reports; None if the program does not run."""
    command = [str(program), *(arguments or ("--version",))]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer)


def parse_version(text: str) -> Version | None:
    """Returns the first version in a program's output, such as `Kubernetes v1.34.4` or `etcd Version: 3.6.4`."""
    found = re.search(r"v?(\d+)\.(\d+)\.\d+", text)
    return (int(found[1]), int(found[2])) if found else None


def cache_key(module: Path = MODULE) -> str:
    """Returns a name that depends on the module's sources, its pinned dependencies and the architecture."""
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((module / name).read_bytes() + b"\0")
    return f"{kubernetes_version(module)}-{architecture()}-{digest.hexdigest()[:16]}"


def kubernetes_version(module: Path = MODULE) -> str:
    return required_version("k8s.io/kubernetes", module)


def etcd_version() -> str:
    return required_version("go.etcd.io/etcd/server/v3", MODULE)


def required_version(package: str, module: Path) -> str:
    """Returns the version of a Go package that the module requires."""
    found = re.search(rf"^\s*{re.escape(package)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise StackError(f"{module / 'go.mod'} does not require {package}")
    return found[1]


def architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def link_kubectl(programs: Programs, target: Path) -> bool:
    """Links kubectl into the directory of `poolhouse` if PATH has no kubectl or an old version. Returns whether it
    created the link. Poolhouse itself does not use kubectl."""
    ours = programs.directory / "kubectl"
    if target.is_symlink() and target.resolve() != ours.resolve():
        target.unlink(missing_ok=True)
    if not ours.exists() or target.exists():
        return False
    others = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if Path(entry) != target.parent]
    theirs = shutil.which("kubectl", path=os.pathsep.join(others))
    version = program_version(theirs, "version", "--client") if theirs else None
    if version and version > MINIMUM_KUBECTL_VERSION:
        return False
    try:
        target.symlink_to(ours)
    except FileExistsError:  # another stack starts at the same time
        return False
    return True


class DownloadFailed(Exception):
    """The file cannot be downloaded, or its hash differs from the published hash."""


@dataclass(frozen=True)
class Releases:
    kubernetes: str = KUBERNETES
    etcd: str = ETCD

    def download(self, directory: Path, echo: Echo) -> bool:
        """Downloads all programs into the directory. Returns False, and writes no program, if any download fails."""
        if os.environ.get("POOLHOUSE_DOWNLOADS") == "never":
            return False
        version = kubernetes_version()
        base = f"{self.kubernetes}/{version}/bin/linux/{architecture()}"
        try:
            _fetch(f"{base}/kube-apiserver.sha256", CONNECT_SECONDS)
        except DownloadFailed as reason:
            echo(f"Kubernetes' releases cannot be reached ({reason})")
            return False
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".download-") as temporary:
            try:
                for name in (each for each in BUILT if each != "etcd"):
                    echo(f"downloading {name} {version}")
                    _write(
                        Path(temporary) / name,
                        fetch_verified(f"{base}/{name}", published_sha256(f"{base}/{name}.sha256")),
                    )
                self._etcd(Path(temporary), echo)
            except DownloadFailed as reason:
                echo(f"the download failed: {reason}")
                return False
            shutil.copytree(temporary, directory, dirs_exist_ok=True)
        return True

    def _etcd(self, directory: Path, echo: Echo) -> None:
        version = etcd_version()
        name = f"etcd-{version}-linux-{architecture()}"
        base = f"{self.etcd}/{version}"
        echo(f"downloading etcd {version}")
        sums = dict(line.split()[::-1] for line in _fetch(f"{base}/SHA256SUMS").decode().splitlines() if line.strip())
        if f"{name}.tar.gz" not in sums:
            raise DownloadFailed(f"{base}/SHA256SUMS has no hash of {name}.tar.gz")
        archive = fetch_verified(f"{base}/{name}.tar.gz", sums[f"{name}.tar.gz"])
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile(f"{name}/etcd")
            if member is None:
                raise DownloadFailed(f"{name}.tar.gz does not contain etcd")
            _write(directory / "etcd", member.read())


def published_sha256(url: str) -> str:
    """Downloads a file of hashes and returns the first hash."""
    return _fetch(url, CONNECT_SECONDS).decode().split()[0]


def fetch_verified(url: str, sha256: str) -> bytes:
    content = _fetch(url)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DownloadFailed(f"{url} has the hash {found}, but {sha256} was published")
    return content


def _fetch(url: str, seconds: float = READ_SECONDS) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.URLError as error:
        raise DownloadFailed(f"{url}: {error.reason}") from error
    except OSError as error:
        raise DownloadFailed(f"{url}: {error}") from error


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


def build_programs(directory: Path, echo: Echo, module: Path = MODULE) -> None:
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
    for name in BUILT:
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(PROGRAM)


def command(target: Path, module: Path = MODULE) -> list[str]:
    """Returns the build command. Without the linker's variables the API server would report version v0.0.0."""
    version = kubernetes_version(module)
    major, minor = version.removeprefix("v").split(".")[:2]
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return ["go", "build", "-v", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(target), "."]


def main() -> int:
    """Prepares the programs during `make setup`, so that the first `poolhouse up` does not wait for them."""
    try:
        programs = find_programs(lambda text: print(text, flush=True))
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"control plane: {programs.directory} ({programs.origin})")
    if link_kubectl(programs, Path(sys.prefix) / "bin" / "kubectl"):
        print("linked kubectl beside poolhouse, because PATH has none newer than 1.31")
    return 0


if __name__ == "__main__":
    sys.exit(main())
