"""Tokens of ServiceAccounts, as the API server issues them."""

from __future__ import annotations

from pathlib import Path

import yaml

from poolhouse.runtime.api import Api
from tests.resources import SERVICE_ACCOUNTS


async def token_of(api: Api, namespace: str, name: str, seconds: int = 3600) -> str:
    """A token of the account, which must exist."""
    request = {"spec": {"expirationSeconds": seconds}}
    issued = await api.request("POST", SERVICE_ACCOUNTS.path(namespace, name, "token"), body=request)
    return str(issued["status"]["token"])


def kubeconfig_with(token: str, original: Path, to: Path, namespace: str = "default") -> Path:
    """A kubeconfig of the same cluster with this token, for this namespace."""
    config = yaml.safe_load(original.read_text())
    for each in config["users"]:
        each["user"] = {"token": token}
    for each in config["contexts"]:
        each["context"]["namespace"] = namespace
    to.write_text(yaml.safe_dump(config))
    return to
