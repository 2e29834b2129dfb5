"""Reads what the page shows and writes what users change, with the rights of the user whose client is given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.claim import CLAIM
from poolhouse.api.kinds.resource_types import CLAIM_PHASES
from poolhouse.api.kinds.warmpool import WARM_POOL
from poolhouse.cli.claims import extension
from poolhouse.cli.conflicts import again_if_changed
from poolhouse.cli.output import Failed
from poolhouse.portal.my_vms import HOURS, Seen, is_mine, vm_of
from poolhouse.runtime.access_review import caller_may
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unavailable, Unreachable, WebhookFailed
from poolhouse.runtime.resource import Resource

if TYPE_CHECKING:
    from poolhouse.runtime.api import Api

CLAIMS, POOLS = Resource.of(CLAIM), Resource.of(WARM_POOL)


async def seen(api: Api, user: str, namespaces: Sequence[str]) -> Seen:
    """The claims and warm pools that the user may list: those of all namespaces, or else of the given ones."""
    claims, pools = await asyncio.gather(_list(api, CLAIMS, namespaces), _list(api, POOLS, namespaces))
    places = sorted({each["metadata"]["namespace"] for each in pools})
    allowed = await asyncio.gather(*(caller_may(api, "create", CLAIMS, each) for each in places))
    return Seen(user, claims, pools, frozenset(each for each, may in zip(places, allowed, strict=True) if may))


async def _list(api: Api, resource: Resource, namespaces: Sequence[str]) -> list[Json]:
    try:
        return (await api.list(resource))[0]
    except Forbidden:
        found = await asyncio.gather(*(_list_in(api, resource, each) for each in namespaces))
        return [each for items in found for each in items]


async def _list_in(api: Api, resource: Resource, namespace: str) -> list[Json]:
    try:
        return (await api.list(resource, namespace))[0]
    except Forbidden:
        return []


async def take(api: Api, namespace: str, pool: str) -> str:
    name = f"vm-{uuid4().hex[:8]}"
    body = {
        "apiVersion": CLAIM.api_version,
        "kind": CLAIM.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"poolName": pool},
    }
    await api.create(CLAIMS, body)
    return f"You get a VM of {pool}. It is called {name} here."


async def claim(api: Api, user: str, namespace: str, name: str) -> Json:
    """A claim of this user. Raises `Failed` for any other, also if the user may read it in the cluster."""
    try:
        found = await api.get(CLAIMS, namespace, name)
    except (NotFound, Forbidden):
        found = None
    if found is None or not is_mine(found, user):
        raise Failed(f"You have no VM {name}.")
    return found


async def vm(api: Api, user: str, namespace: str, name: str) -> str:
    """The VM of a claim of this user. Raises `Failed` without one."""
    if not (found := vm_of(await claim(api, user, namespace, name))):
        raise Failed(f"{name} has no screen now; the page of your VMs says why.")
    return found


async def release(api: Api, user: str, namespace: str, name: str) -> str:
    """Gives the VM back. A claim that has failed has none, so that it is deleted."""
    found = await claim(api, user, namespace, name)
    if (found.get("status") or {}).get("phase") == CLAIM_PHASES.failed:
        await api.delete(CLAIMS, namespace, name, uid=found["metadata"]["uid"])
        return f"{name} is removed."
    change = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"release": True}}
    await api.patch(CLAIMS, namespace, name, change)
    return f"{name} is released."


@again_if_changed
async def extend(api: Api, user: str, namespace: str, name: str, hours: str) -> str:
    if hours not in map(str, HOURS):
        raise Failed(f"hours: must be one of {', '.join(map(str, HOURS))}, not {hours[:20]!r}")
    found = await claim(api, user, namespace, name)
    await api.patch(CLAIMS, namespace, name, extension(found, int(hours) * 3600))
    return f"You keep {name} {count_noun(int(hours), 'hour')} longer, as far as its pool allows."


def sentence(error: ApiError) -> str:
    """What the user reads about an error of the API server."""
    if isinstance(error, WebhookFailed):
        return "Poolhouse does not answer in the cluster. Tell your administrator."
    if isinstance(error, Unreachable | Unavailable):
        return "The cluster does not answer. Try again in a minute."
    return error.message


def address(text: str, failed: str) -> str:
    return f"/?message={quote(text[:1000])}{'&failed=yes' if failed else ''}"
