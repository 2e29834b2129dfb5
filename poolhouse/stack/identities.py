"""Creates a static token and a kubeconfig for each user of the API server.

The tokens are static because they must exist before the API server runs, and must not expire while a stack runs for
months. A service uses the user name of its ServiceAccount, and therefore has the same rights as on a cluster.
"""

import csv
import io
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from poolhouse.service.certwatcher import write_atomically

MASTERS = "system:masters"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...]


ADMIN = User("poolhouse-admin", (MASTERS,))
# The controllers, such as the garbage collector, need rights to every resource.
CONTROLLER_MANAGER = User("system:kube-controller-manager", (MASTERS,))
# Kubernetes' own roles name this user.
SCHEDULER = User("system:kube-scheduler", ("system:authenticated",))


def service_account(name: str) -> User:
    """Returns the user of a ServiceAccount, whose name is `system:serviceaccount:NAMESPACE:NAME`."""
    namespace = name.split(":")[2]
    return User(name, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"))


def load_tokens(users: Iterable[User], record: Path) -> dict[str, str]:
    """Returns the tokens by user name. Reads existing tokens from the record, and writes new tokens into it."""
    recorded: dict[str, str] = {}
    if record.exists():
        with record.open(newline="") as file:
            recorded = {row[1]: row[0] for row in csv.reader(file) if len(row) >= 3}
    tokens = {user: recorded.get(user.name) or secrets.token_hex(24) for user in users}
    rows = [[token, user.name, user.name, ",".join(user.groups)] for user, token in tokens.items()]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    write_atomically(record, table.getvalue().encode())
    return {user.name: token for user, token in tokens.items()}


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: str, token: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "poolhouse", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "poolhouse", "context": {"cluster": "poolhouse", "user": user}}],
        "current-context": "poolhouse",
    }
    write_atomically(path, yaml.safe_dump(content, sort_keys=False).encode())
