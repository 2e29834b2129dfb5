"""Where everything of one stack lives.

All state is under DIR, except for two things that cannot always be there, each recorded in DIR so that every process
finds it: unix sockets, whose paths end at 107 bytes, and what the unprivileged workers of a stack that root started
must reach, when DIR lies below a home that they may not enter.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.components import StackError

# Carried in the environment by every process of a stack, with DIR as its value: `down` ends these and nothing else.
DIR_VARIABLE = "POOLHOUSE_DIR"

UNPRIVILEGED_USER = "nobody"


@dataclass(frozen=True)
class StackPaths:
    """Every path of the stack whose state is in `dir`."""

    dir: Path

    @classmethod
    def of(cls, dir: Path | str) -> StackPaths:
        """Two spellings of one directory are one stack."""
        return cls(Path(dir).resolve())

    @property
    def kubeconfig(self) -> Path:
        """cluster-admin, for people and tests"""
        return self.dir / "kubeconfig"

    def kubeconfig_of(self, service: str) -> Path:
        return self.dir / "kubeconfigs" / service

    @property
    def endpoints(self) -> Path:
        return self.dir / "endpoints.json"

    @property
    def logs(self) -> Path:
        return self.dir / "logs"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    @property
    def tls(self) -> Path:
        return self.dir / "tls"

    def tls_of(self, service: str) -> Path:
        """tls.crt, tls.key and ca.crt of one service"""
        return self.tls / service

    @property
    def ca(self) -> Path:
        """what verifies every https endpoint of the stack"""
        return self.tls / "ca.crt"

    @property
    def etcd(self) -> Path:
        return self.dir / "etcd"

    @property
    def ports(self) -> Path:
        return self.dir / "ports.json"

    @property
    def tokens(self) -> Path:
        return self.dir / "tokens.csv"

    @property
    def status(self) -> Path:
        """written by the supervisor whenever something changes"""
        return self.dir / "status.json"

    @property
    def lock(self) -> Path:
        """held by the supervisor while it lives, with its pid inside"""
        return self.dir / "lock"

    @property
    def runtime(self) -> Path:
        """Short and made anew by every `up`: sockets."""
        return self._recorded("runtime-dir")

    @property
    def shared(self) -> Path:
        """Kept from one `up` to the next, and within reach of the unprivileged workers."""
        return self._recorded("shared-dir")

    @property
    def disks(self) -> Path:
        return self.shared / "disks"

    @property
    def defaulter(self) -> Path:
        return self.shared / "defaulter"

    def node(self, name: str) -> Path:
        """what a node's libvirt keeps"""
        return self.shared / "nodes" / name

    def node_runtime(self, name: str) -> Path:
        """where a node's libvirt has its sockets"""
        return self.runtime / name

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What cannot be written is `Broken`: a disk is full, or DIR is somebody else's."""
        try:
            yield
        except OSError as error:
            why = f"{error.strerror} ({error.filename})" if error.filename else str(error)
            raise StackError(f"{self.dir} cannot hold a stack: {why}; give another --dir") from None

    def prepare(self, worker: int | None) -> None:
        """Make the directories that a stack needs before its first process; `worker` is the uid of its unprivileged
        components where that is not our own."""
        made = not self.dir.exists()
        self.dir.mkdir(parents=True, exist_ok=True)
        if made:
            self.dir.chmod(0o711 if worker is not None else 0o700)
        for private in (self.logs, self.tls, self.etcd, self.dir / "kubeconfigs"):
            private.mkdir(mode=0o700, exist_ok=True)
        self._prepare_runtime(worker)
        self._prepare_shared(worker)

    def _prepare_runtime(self, worker: int | None) -> None:
        if not _ours(self.dir / "runtime-dir", self.dir):
            self._claim("runtime-dir", Path(tempfile.mkdtemp(prefix="ph-", dir="/tmp")))
        self.runtime.chmod(0o711)
        (self.runtime / "etcd").mkdir(mode=0o700, exist_ok=True)

    def _prepare_shared(self, worker: int | None) -> None:
        if not _ours(self.dir / "shared-dir", self.dir):
            inside = self.dir / "shared"
            inside.mkdir(exist_ok=True)
            outside = worker is not None and not _within_reach(inside)
            self._claim("shared-dir", _far_from_here() if outside else inside)
        self.shared.chmod(0o711 if worker is not None else 0o700)
        for directory in (self.disks, self.defaulter, self.shared / "nodes"):
            directory.mkdir(mode=0o711, exist_ok=True)
            if worker is not None:
                os.chown(directory, worker, -1)

    def _claim(self, record: str, directory: Path) -> None:
        (directory / "owner").write_text(f"{self.dir}\n")
        (self.dir / record).write_text(f"{directory}\n")

    def _recorded(self, record: str) -> Path:
        return Path((self.dir / record).read_text().strip())


def _ours(record: Path, owner: Path) -> bool:
    """Whether the recorded directory is there and was made for this stack: DIR may have been copied, /tmp emptied."""
    try:
        directory = Path(record.read_text().strip())
        return (directory / "owner").read_text().strip() == str(owner)
    except OSError:
        return False


def _within_reach(path: Path) -> bool:
    """Whether anyone may pass through every directory above."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


def _far_from_here() -> Path:
    directory = Path("/var/tmp") / f"poolhouse-{secrets.token_hex(4)}"
    directory.mkdir(mode=0o711)
    return directory


def abandoned_directories(root: Path = Path("/var/tmp")) -> Iterator[Path]:
    """Shared directories outside of a DIR that no longer exists or no longer names them."""
    for directory in root.glob("poolhouse-*"):
        try:
            owner = Path((directory / "owner").read_text().strip())
            named = Path((owner / "shared-dir").read_text().strip()) if owner.is_dir() else None
        except OSError:
            continue
        if named != directory and directory.stat().st_uid == os.geteuid():
            yield directory
