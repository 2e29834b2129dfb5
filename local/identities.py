"""Who may call the API server: one static token each, and a kubeconfig for everyone who needs one.

Static, because they must be there before the API server is, and must not end while a stack runs for months. A service
has the name of its ServiceAccount and so exactly the rights that it has on a cluster.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

MASTERS = "system:masters"


@dataclass(frozen=True)
class Identity:
    """A caller, as the API server will know it."""

    name: str
    groups: tuple[str, ...]


ADMIN = Identity("poolhouse-admin", (MASTERS,))
# Its controllers write wherever an owner or a quota says, as the ServiceAccounts of a real one do together.
MANAGER = Identity("system:kube-controller-manager", (MASTERS,))


def service(account: str) -> Identity:
    """A ServiceAccount, `system:serviceaccount:NAMESPACE:NAME`."""
    namespace = account.split(":")[2]
    return Identity(account, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"))


def load_tokens(identities: Iterable[Identity], record: Path) -> dict[str, str]:
    """The token of each, by name; those of an earlier `up` stay what they were."""
    kept = {row[1]: row[0] for row in _rows(record)}
    tokens = {identity: kept.get(identity.name) or secrets.token_hex(24) for identity in identities}
    rows = [[token, who.name, who.name, ",".join(who.groups)] for who, token in tokens.items()]
    with _private(record).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return {identity.name: token for identity, token in tokens.items()}


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: str, token: str) -> None:
    content: Mapping[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "poolhouse", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "poolhouse", "context": {"cluster": "poolhouse", "user": user}}],
        "current-context": "poolhouse",
    }
    _private(path).write_text(yaml.safe_dump(content, sort_keys=False))


def _rows(record: Path) -> list[list[str]]:
    try:
        with record.open(newline="") as file:
            return [row for row in csv.reader(file) if len(row) >= 3]
    except OSError:
        return []


def _private(path: Path) -> Path:
    """The file, empty or not, readable by nobody else before a secret is written into it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    path.chmod(0o600)
    return path
