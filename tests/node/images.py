"""Builds the images of Poolhouse with its Dockerfiles, and imports images into nodes.

buildah builds without a daemon. Its storage in the cache keeps the layers, so that a change of the code repeats only
the last steps. The base of both images comes from mmdebstrap, because no registry is needed then. To build everything
again, for example with newer packages, delete the storage (`~/.cache/poolhouse/images`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from poolhouse.service.user_cache import cache_dir
from poolhouse.stack.binaries import architecture
from poolhouse.stack.components import Echo, StackError
from tests.node.layout import Layout

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILES = {"poolhouse": "Dockerfile", "poolhouse-defaulter": "Dockerfile.defaulter"}
SUITE = "bookworm"
BASE = f"localhost/debian:{SUITE}"
REGISTRY = "localhost"
"""The value `global.imageRegistry` of the chart. Nothing listens there: the nodes have the images."""
CHART = yaml.safe_load((ROOT / "charts" / "poolhouse" / "Chart.yaml").read_text())
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
"""What a build needs of this machine's pip configuration."""
MAX_LAYERS = 400
"""With more, the storage is built again: each change of the code adds about thirty."""
BUILD_SECONDS = 1200
LOAD_SECONDS = 300


def build(echo: Echo) -> list[Path]:
    """Returns an archive of each image. Raises `StackError`."""
    storage = cache_dir() / "images"
    storage.mkdir(parents=True, exist_ok=True)
    # Those of a build that was ended are still mounted.
    _run([*_buildah(storage), "rm", "--all"])
    if len(_run([*_buildah(storage), "images", "--all", "--quiet"]).splitlines()) > MAX_LAYERS:
        shutil.rmtree(storage / "root")
    if not _image_id(storage, BASE):
        echo(f"making the base {BASE} with mmdebstrap")
        _make_base(storage)
    return [_build(storage, name, dockerfile, echo) for name, dockerfile in DOCKERFILES.items()]


def name_of(image: str) -> str:
    """The name that the chart expects."""
    return f"{REGISTRY}/poolhouse/{image}:{CHART['appVersion']}"


def _make_base(storage: Path) -> None:
    context = storage / "base"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
    _run(["mmdebstrap", "--quiet", "--variant=minbase", SUITE, str(context / "base.tar")])
    _run([*_buildah(storage), "bud", "--isolation=chroot", f"--tag={BASE}", str(context)])
    shutil.rmtree(context)


def _build(storage: Path, name: str, dockerfile: str, echo: Echo) -> Path:
    echo(f"building {name_of(name)} with {dockerfile}")
    pip = storage / "pip.conf"
    pip.write_text(_pip_configuration())
    _run(
        [
            *_buildah(storage),
            "bud",
            "--layers",
            # The steps run as processes of this machine, with its network and its certificates.
            "--isolation=chroot",
            "--network=host",
            f"--volume={CERTIFICATES}:/run/certificates:ro",
            f"--volume={pip}:/etc/pip.conf:ro",
            f"--build-arg=BASE={BASE}",
            f"--tag={name_of(name)}",
            f"--file={ROOT / dockerfile}",
            str(ROOT),
        ]
    )
    archive = storage / f"{name}-{CHART['appVersion']}-{_image_id(storage, name_of(name))}.tar"
    if not archive.exists():
        for outdated in storage.glob(f"{name}-[0-9]*.tar"):
            outdated.unlink()
        draft = archive.with_suffix(f".{os.getpid()}")
        _run([*_buildah(storage), "push", "--quiet", name_of(name), f"docker-archive:{draft}:{name_of(name)}"])
        draft.rename(archive)
    return archive


def _buildah(storage: Path) -> list[str]:
    return ["buildah", f"--root={storage}/root", f"--runroot={storage}/run", "--storage-driver=overlay"]


def _image_id(storage: Path, name: str) -> str:
    """The ID of an image; empty if there is none."""
    command = [*_buildah(storage), "images", "--quiet", "--no-trunc", "--filter", f"reference={name}"]
    return _run(command).strip().rpartition(":")[2]


def _pip_configuration() -> str:
    listed = _run([sys.executable, "-m", "pip", "config", "list"])
    options = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        if (option := key.rpartition(".")[2]) in PIP_OPTIONS:
            options[option] = value.strip("'")
    return "[global]\ncert = /run/certificates\n" + "".join(f"{key} = {value}\n" for key, value in options.items())


def _run(command: list[str]) -> str:
    """Returns the output. Raises `StackError` with the last lines of the errors, or after `BUILD_SECONDS`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise StackError(f"{' '.join(command[:6])} ... did not end within {BUILD_SECONDS} s") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise StackError(f"{' '.join(command[:6])} ... failed:\n{last}")
    return done.stdout


def write_system_images(directory: Path, programs: Path) -> list[Path]:
    """Writes the archives of the images that every cluster needs: of a pod's sandbox, and of CoreDNS."""
    archives = []
    for name in ("pause", "coredns"):
        archive = directory / f"{name}.tar"
        _write_archive(archive, f"localhost/{name}:1", {f"/{name}": programs / name}, [f"/{name}"])
        archives.append(archive)
    return archives


def _write_archive(target: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Writes an image of these files as `docker save` would."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path, source in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.mode, member.size = 0o755, source.stat().st_size
            with source.open("rb") as content:
                tar.addfile(member, content)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "User": "65532:65532"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}])
    with tarfile.open(target, "w") as tar:
        for path, data in (
            ("layer.tar", layer.getvalue()),
            ("config.json", config),
            ("manifest.json", manifest.encode()),
        ):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def load(layout: Layout, archive: Path) -> None:
    """Imports the images of an archive into every node. Raises `StackError`."""
    for node in layout.nodes:
        command = [*layout.inside(node.name), "ctr", "--namespace=k8s.io", "images", "import", str(archive)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
        if done.returncode:
            raise StackError(f"{archive} cannot be imported into {node.name}: {done.stderr.strip()}")
