"""The paths of one stack.

All state is under DIR, with two exceptions. Unix sockets are outside, because their paths have at most 107 bytes. The
files of unprivileged workers are outside if these workers cannot enter DIR. Files in DIR record both directories.
"""

import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from poolhouse.stack.components import StackError

# Every process of a stack has DIR in this environment variable. `down` ends exactly these processes.
DIR_VARIABLE = "POOLHOUSE_DIR"
UNPRIVILEGED_USER = "nobody"


class StackPaths:
    def __init__(self, directory: Path | str, sockets: Path = Path("/tmp")) -> None:
        self.dir, self._sockets = Path(directory).resolve(), sockets
        self.kubeconfig = self.dir / "kubeconfig"
        """kubeconfig of cluster-admin, for users and tests"""
        self.endpoints = self.dir / "endpoints.json"
        self.prometheus = self.dir / "prometheus.yml"
        """configuration of a Prometheus that scrapes the stack"""
        self.logs = self.dir / "logs"
        self.tls = self.dir / "tls"
        self.ca = self.tls / "ca.crt"
        """CA bundle that verifies every HTTPS endpoint of the stack"""
        self.etcd = self.dir / "etcd"
        self.ports = self.dir / "ports.json"
        self.tokens = self.dir / "tokens.csv"
        self.status = self.dir / "status.json"
        self.lock = self.dir / "lock"
        """lock file with the PID of the supervisor, which holds the lock while it runs"""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StackPaths) and other.dir == self.dir

    def __hash__(self) -> int:
        return hash(self.dir)

    @property
    def admission(self) -> Path:
        """The API server's AdmissionConfiguration."""
        return self.dir / "kubeconfigs" / "admission.yaml"

    def kubeconfig_of(self, service: str) -> Path:
        return self.dir / "kubeconfigs" / service

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def tls_of(self, service: str) -> Path:
        """The directory of the service's tls.crt, tls.key and ca.crt."""
        return self.tls / service

    @property
    def runtime(self) -> Path:
        """The directory of sockets, with a short path. Every `up` creates a new one."""
        return self._recorded("runtime-dir")

    @property
    def shared(self) -> Path:
        """The directory that unprivileged workers can enter. It is kept from one `up` to the next."""
        return self._recorded("shared-dir")

    @property
    def disks(self) -> Path:
        return self.shared / "disks"

    @property
    def defaulter(self) -> Path:
        return self.shared / "defaulter"

    def node(self, name: str) -> Path:
        """The cache of a node's libvirt."""
        return self.shared / "nodes" / name

    def node_runtime(self, name: str) -> Path:
        """The sockets of a node's libvirt."""
        return self.runtime / name

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turns an `OSError`, such as a full disk or a DIR of another user, into a `StackError`."""
        try:
            yield
        except OSError as error:
            why = f"{error.strerror} ({error.filename})" if error.filename else str(error)
            raise StackError(f"{self.dir} cannot hold a stack: {why}; use another --dir") from None

    def check_name(self) -> None:
        """Raises `StackError` if the path of DIR cannot be written into a kubeconfig, or into $KUBECONFIG."""
        name, why = str(self.dir), ""
        if os.pathsep in name:
            why = f"its path has {os.pathsep!r}, which separates the paths in $KUBECONFIG"
        elif not name.isprintable():
            why = "its path has characters that cannot be printed"
        if why:
            raise StackError(f"{name} cannot hold a stack: {why}; use another --dir")

    def create(self) -> None:
        """Creates DIR, which others cannot list, and the directory of the logs, which others cannot read. The
        permissions of a DIR that exists stay: it may have other files of its user."""
        if not self.dir.exists():
            self.dir.mkdir(parents=True, exist_ok=True)
            # Root's processes of an unprivileged user need what is below.
            self.dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
        self.logs.mkdir(mode=0o700, exist_ok=True)
        self.logs.chmod(0o700)  # it may exist already

    def prepare(self, worker_uid: int | None) -> None:
        """Creates the directories that the first process needs. `worker_uid` is the unprivileged user, or None."""
        self.create()
        for private in (self.tls, self.etcd, self.dir / "kubeconfigs"):
            private.mkdir(mode=0o700, exist_ok=True)
        if not _belongs_to(self.dir / "runtime-dir", self.dir):
            self._record("runtime-dir", lambda: Path(tempfile.mkdtemp(prefix="ph-", dir=self._sockets)))
        self.runtime.chmod(0o711)
        (self.runtime / "etcd").mkdir(mode=0o700, exist_ok=True)
        self._prepare_shared(worker_uid)

    def _prepare_shared(self, worker_uid: int | None) -> None:
        if not _belongs_to(self.dir / "shared-dir", self.dir):
            inside = self.dir / "shared"
            inside.mkdir(exist_ok=True)
            reachable = worker_uid is None or all(parent.stat().st_mode & stat.S_IXOTH for parent in inside.parents)
            self._record("shared-dir", lambda: inside if reachable else _new_outside_directory())
        self.shared.chmod(0o711 if worker_uid is not None else 0o700)
        for directory in (self.disks, self.defaulter, self.shared / "nodes"):
            directory.mkdir(mode=0o711, exist_ok=True)
            if worker_uid is not None:
                os.chown(directory, worker_uid, -1)

    def _record(self, record: str, make: Callable[[], Path]) -> None:
        with _outside():
            directory = make()
        (self.dir / record).write_text(f"{directory}\n")  # first: a stack that starts deletes what no DIR records
        with _outside(directory):
            (directory / "owner").write_text(f"{self.dir}\n")

    def _recorded(self, record: str) -> Path:
        return Path((self.dir / record).read_text().strip())


@contextmanager
def _outside(directory: Path | None = None) -> Iterator[None]:
    """Turns an `OSError` into a `StackError` about the directory, which may be on another disk than DIR. Removes the
    directory if it is new."""
    try:
        yield
    except OSError as error:
        if directory is not None:
            with suppress(OSError):
                (directory / "owner").unlink(missing_ok=True)
                directory.rmdir()
        place = directory or Path(error.filename or tempfile.gettempdir())
        raise StackError(f"{place.parent} cannot hold files of a stack: {error.strerror}; free space there") from None


def _belongs_to(record: Path, stack: Path) -> bool:
    """Whether the recorded directory exists and belongs to this stack. In a copied DIR, the record names the directory
    of another stack."""
    try:
        directory = Path(record.read_text().strip())
        return (directory / "owner").read_text().strip() == str(stack)
    except OSError:
        return False


def _new_outside_directory() -> Path:
    directory = Path("/var/tmp") / f"poolhouse-{secrets.token_hex(4)}"
    directory.mkdir(mode=0o711)
    return directory


def abandoned_directories(root: Path = Path("/var/tmp")) -> Iterator[Path]:
    """Yields shared directories in /var/tmp whose DIR was deleted or records another directory."""
    for directory in root.glob("poolhouse-*"):
        try:
            owner = Path((directory / "owner").read_text().strip())
            recorded = Path((owner / "shared-dir").read_text().strip()) if owner.is_dir() else None
            is_ours = directory.stat().st_uid == os.geteuid()
        except OSError:  # another stack may delete it at the same time
            continue
        if recorded != directory and is_ours:
            yield directory
