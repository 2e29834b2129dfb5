"""Runs the container of a Pod in an image that `tests.image.clean_root` has built."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml

from tests.image.clean_root import CONFIG, confined, first_process

Json = dict[str, Any]

CREDENTIALS = "/run/secrets/kubernetes.io/serviceaccount"
"""the directory of the token; /var/run links to /run"""


class Process(Protocol):
    @property
    def pid(self) -> int: ...


@dataclass(frozen=True)
class Image:
    root: Path
    environment: Mapping[str, str]

    @classmethod
    def load(cls, images: Path, name: str) -> Image:
        """The image REGISTRY/REPOSITORY/NAME:TAG is in the directory NAME of `images`."""
        directory = images / name.rpartition("/")[2].partition("@")[0].partition(":")[0]
        return cls(directory / "final", json.loads((directory / CONFIG).read_text())["Env"])

    def command(self, pod: Json, volumes: Mapping[str, Path], command: Sequence[str]) -> list[str]:
        """Returns the command that runs `command` with the user, the root and the volumes of the Pod."""
        security, (container,) = pod["securityContext"], pod["containers"]
        assert security["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        for directory in volumes.values():
            os.chown(directory, 0, security.get("fsGroup", 0))
            directory.chmod(0o2777)
        user = f"{security['runAsUser']}:{security['runAsGroup']}"
        return confined(self.root, user, {path: str(volume) for path, volume in volumes.items()}, command)


def credentials(directory: Path, kubeconfig: Path, namespace: str, token: str) -> dict[str, str]:
    """Writes the files of a ServiceAccount token; returns the variables with the address of the API server."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    directory.mkdir(parents=True)
    (directory / "token").write_text(token)
    (directory / "namespace").write_text(namespace)
    (directory / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    server = urlsplit(cluster["server"])
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}


def terminate(process: Process, contained: bool) -> None:
    with suppress(ProcessLookupError, FileNotFoundError, IndexError):
        os.kill(first_process(process.pid) if contained else process.pid, signal.SIGTERM)
