"""Finds the layers of an image in a registry, and the disk in a layer, as CDI's importer does.

Registries are asked anonymously and with TLS; those of this machine without TLS, as container runtimes ask them.
"""

import asyncio
import hashlib
import json
import platform
import re
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import aiohttp

from poolhouse.api.apimachinery.unstructured import Json

DISKS = "disk/"
NO_DISK = "Failed to find VM disk image file in the container image"
"""CDI's message"""
LOCAL = ("localhost", "127.0.0.1")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ACCEPTED = ", ".join(
    [
        *(f"application/vnd.oci.image.{kind}.v1+json" for kind in ("index", "manifest")),
        *(f"application/vnd.docker.distribution.manifest{kind}.v2+json" for kind in (".list", "")),
    ]
)
MAX_MANIFEST_BYTES = 4 * 1024 * 1024
"""as registries limit it (OCI distribution specification, "Pushing Manifests")"""
PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class RegistryRefused(Exception):
    """The registry does not give the image, or the image has no disk. The message gives the reason."""


@dataclass(frozen=True)
class Reference:
    """An image, such as `docker://quay.io/containerdisks/fedora:latest`."""

    address: str
    """URL of the image's repository"""
    version: str
    """tag or digest"""


def parse_reference(url: str) -> Reference:
    """Raises RegistryRefused for an image without the host of its registry, because no registry is the default."""
    host, _, name = url.removeprefix("docker://").partition("/")
    if not name or not ("." in host or ":" in host or host == "localhost"):
        raise RegistryRefused(f"{url}: name the host of the registry: docker://HOST/NAME:TAG")
    named, _, digest = name.partition("@")
    path, _, tag = named.partition(":")
    scheme = "http" if host.split(":")[0] in LOCAL else "https"
    return Reference(f"{scheme}://{host}/v2/{path}", digest or tag or "latest")


async def find_layers(session: aiohttp.ClientSession, image: Reference) -> tuple[list[str], dict[str, str]]:
    """The digests of the image's layers, and the headers with which the registry gives them."""
    headers: dict[str, str] = {}
    manifest = await _get_manifest(session, image, image.version, headers)
    if "manifests" in manifest:
        here = ARCHITECTURES.get(platform.machine(), platform.machine())
        fitting = [each for each in manifest["manifests"] if (each.get("platform") or {}).get("architecture") == here]
        if not fitting:
            raise RegistryRefused(f"the image has no variant for {here}")
        manifest = await _get_manifest(session, image, fitting[0]["digest"], headers)
    return [layer["digest"] for layer in manifest.get("layers") or ()], headers


async def _get_manifest(
    session: aiohttp.ClientSession, image: Reference, version: str, headers: dict[str, str]
) -> dict[str, Any]:
    """Adds a token to the headers if the registry wants one."""
    url = f"{image.address}/manifests/{version}"
    for _ in range(2):
        async with session.get(url, headers={"Accept": ACCEPTED, **headers}) as answer:
            if answer.status == 200:
                return await _parse_manifest(answer, version)
            wanted = answer.headers.get("WWW-Authenticate", "")
        if answer.status != 401 or headers or not wanted.startswith("Bearer "):
            break
        headers["Authorization"] = f"Bearer {await _get_token(session, dict(PARAMETER.findall(wanted)))}"
    raise RegistryRefused(f"Could not create image reference: {url}: {answer.status} {answer.reason}")


async def _parse_manifest(answer: aiohttp.ClientResponse, version: str) -> Json:
    try:
        raw = await answer.content.readexactly(MAX_MANIFEST_BYTES)
    except asyncio.IncompleteReadError as whole:
        raw = whole.partial
    else:
        raise RegistryRefused(f"the manifest {version} has {MAX_MANIFEST_BYTES} bytes or more")
    if ":" in version and f"sha256:{hashlib.sha256(raw).hexdigest()}" != version:
        raise RegistryRefused(f"the manifest {version} has other bytes than its digest says")
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise RegistryRefused(f"the manifest {version} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RegistryRefused(f"the manifest {version} is not an object")
    return found


async def _get_token(session: aiohttp.ClientSession, challenge: dict[str, str]) -> str:
    query = {name: value for name, value in challenge.items() if name in ("service", "scope")}
    async with session.get(challenge.get("realm", ""), params=query) as answer:
        found = await answer.json(content_type=None) if answer.status == 200 else {}
    return str(found.get("token") or found.get("access_token") or "")


def extract_disk(layer: Path, digest: str, disk: Path, limit: int) -> bool:
    """Whether the layer has a disk, which is then in the file `disk`."""
    algorithm, _, wanted = digest.partition(":")
    with layer.open("rb") as file:
        if algorithm != "sha256" or hashlib.file_digest(file, algorithm).hexdigest() != wanted:
            raise RegistryRefused(f"the layer {digest} has other bytes than its digest says")
    try:
        with tarfile.open(layer) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isfile() and name.startswith(DISKS) and not Path(name).name.startswith(".wh."):
                    if member.size > limit:
                        raise RegistryRefused(f"the disk has {member.size} bytes, more than the {limit} that fit")
                    _write(archive.extractfile(member), disk)
                    return True
    except tarfile.TarError as error:
        raise RegistryRefused(f"the layer {digest} cannot be read: {error}") from error
    return False


def _write(source: IO[bytes] | None, target: Path) -> None:
    assert source is not None  # the member is a file
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
