"""Tokens of ServiceAccounts, as the API server issues them."""

from __future__ import annotations

from poolhouse.runtime.api import Api
from tests.resources import SERVICE_ACCOUNTS


async def token_of(api: Api, namespace: str, name: str, seconds: int = 3600) -> str:
    """A token of the account, which must exist."""
    request = {"spec": {"expirationSeconds": seconds}}
    issued = await api.request("POST", SERVICE_ACCOUNTS.path(namespace, name, "token"), body=request)
    return str(issued["status"]["token"])
