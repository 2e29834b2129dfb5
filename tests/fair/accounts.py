"""Accounts of tenants. The API server exempts cluster-admins from API Priority and Fairness, so no tenant is one."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from poolhouse.runtime.api import Api
from poolhouse.stack.identities import write_kubeconfig
from tests.bench import harness
from tests.resources import ROLE_BINDINGS, SERVICE_ACCOUNTS
from tests.tokens import token_of

NAME = "tenant"
ROLE = "edit"
TOKEN_SECONDS = 6 * 3600
CONNECTIONS = 64


@dataclass(frozen=True)
class Account:
    """A ServiceAccount with the role `edit` in its namespace."""

    api: Api
    namespace: str
    kubeconfig: Path


@asynccontextmanager
async def new_account(admin: Api, directory: Path) -> AsyncIterator[Account]:
    """Creates a namespace and its account in the stack of the directory."""
    async with harness.new_namespace(admin) as namespace:
        with tempfile.TemporaryDirectory() as place:
            kubeconfig = Path(place) / "kubeconfig"
            _write(kubeconfig, directory / "kubeconfig", await _token(admin, namespace))
            async with await harness.connect(kubeconfig, CONNECTIONS) as api:
                yield Account(api, namespace, kubeconfig)


async def _token(admin: Api, namespace: str) -> str:
    metadata = {"name": NAME, "namespace": namespace}
    await admin.create(SERVICE_ACCOUNTS, {"metadata": metadata})
    role = {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": ROLE}
    subject = {"kind": SERVICE_ACCOUNTS.kind, **metadata}
    await admin.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    return await token_of(admin, namespace, NAME, TOKEN_SECONDS)


def _write(kubeconfig: Path, of_admin: Path, token: str) -> None:
    cluster = yaml.safe_load(of_admin.read_text())["clusters"][0]["cluster"]
    ca = Path(cluster["certificate-authority"])
    write_kubeconfig(kubeconfig, server=cluster["server"], ca=ca, user=NAME, token=token)
