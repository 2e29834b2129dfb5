"""Downloads the control plane from the releases of Kubernetes and etcd. Each file must have its published hash."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from local.binaries import Echo, architecture, etcd_version, kubernetes_version

KUBERNETES = "https://dl.k8s.io/release"
ETCD = "https://github.com/etcd-io/etcd/releases/download"
# The first answer decides, so that a machine without the internet loses seconds and not minutes.
CONNECT_SECONDS = 4.0
READ_SECONDS = 30.0


class DownloadFailed(Exception):
    """The file cannot be downloaded or has another hash than the published one."""


@dataclass(frozen=True)
class Releases:
    kubernetes: str = KUBERNETES
    etcd: str = ETCD

    def download(self, directory: Path, echo: Echo) -> bool:
        """Downloads all programs into the directory, or none; returns whether it succeeded."""
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
                for name in ("kube-apiserver", "kube-controller-manager", "kubectl"):
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
    """The first hash in a file of hashes."""
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
