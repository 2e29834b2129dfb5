"""Where the container of a pod runs: in this work tree, or in an image that `tests.image.clean_root` has built."""

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
"""where pods find their token; they know it below /var/run, which leads here"""


class Process(Protocol):
    @property
    def pid(self) -> int: ...


@dataclass(frozen=True)
class Image:
    root: Path
    environment: Mapping[str, str]

    @classmethod
    def kept(cls, images: Path, name: str) -> Image:
        """Of REGISTRY/REPOSITORY/NAME:TAG, what was built into the directory NAME of `images`."""
        directory = images / name.rpartition("/")[2].partition("@")[0].partition(":")[0]
        return cls(directory / "final", json.loads((directory / CONFIG).read_text())["Env"])

    def command(self, pod: Json, volumes: Mapping[str, Path], command: Sequence[str]) -> list[str]:
        """As whom, and with what root, the pod says."""
        security, (container,) = pod["securityContext"], pod["containers"]
        assert security["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        for directory in volumes.values():
            os.chown(directory, 0, security.get("fsGroup", 0))
            directory.chmod(0o2777)
        user = f"{security['runAsUser']}:{security['runAsGroup']}"
        return confined(self.root, user, {path: str(volume) for path, volume in volumes.items()}, command)


def credentials(directory: Path, kubeconfig: Path, namespace: str, token: str) -> dict[str, str]:
    """The files that a pod finds, and the variables that tell it where the API server is."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    directory.mkdir(parents=True)
    (directory / "token").write_text(token)
    (directory / "namespace").write_text(namespace)
    (directory / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    server = urlsplit(cluster["server"])
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}


def tell_to_end(process: Process, contained: bool) -> None:
    with suppress(ProcessLookupError, FileNotFoundError, IndexError):
        os.kill(first_process(process.pid) if contained else process.pid, signal.SIGTERM)
