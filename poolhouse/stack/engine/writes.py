"""Writes to objects that somebody may create or delete meanwhile."""

import contextlib
import logging

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, Conflict, NotFound
from poolhouse.runtime.resource import Key, Resource

log = logging.getLogger(__name__)


async def create_absent(api: Api, resource: Resource, body: Json) -> None:
    """Creates the object, unless one of its name exists."""
    try:
        await api.create(resource, body)
    except AlreadyExists:
        log.debug("%s %s exists already", resource.kind, body["metadata"]["name"])


async def patch_present(api: Api, resource: Resource, key: Key, body: Json, subresource: str | None = None) -> None:
    """Patches the object, unless it is deleted."""
    try:
        await api.patch(resource, *key, body, subresource=subresource)
    except NotFound:
        log.debug("%s %s/%s is deleted", resource.kind, *key)


async def delete_present(api: Api, resource: Resource, key: Key, uid: str | None = None) -> None:
    """Deletes the object, unless it is deleted or another object has its name."""
    with contextlib.suppress(NotFound, Conflict):
        await api.delete(resource, *key, uid=uid)
