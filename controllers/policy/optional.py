"""A kind that this cluster may not have: looked for until it is there, then followed like any other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.informer import Informer
from runtime.resource import Resource

log = logging.getLogger(__name__)

V = TypeVar("V")

LOOK_SECONDS = 30.0
"""between two looks: KubeVirt may be installed after us"""


class Optional(Generic[V]):
    """Asking for what is not there would end in an informer that never syncs, and in a warning every half minute."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[dict[str, Any]], V],
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.informer: Informer[V] = Informer(api, resource, view)
        self.served = False
        self.known = False
        """whether it is known what there is: that the kind is missing, or all of its objects"""
        self._api = api
        self._resource = resource
        self._look_seconds = look_seconds
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed()` when an object changes, and when it comes to be known whether there can be any."""
        self._subscribers.append(changed)
        self.informer.subscribe(lambda old, new: changed())

    @property
    def all(self) -> list[V]:
        return self.informer.store.all() if self.served else []

    def get(self, name: str, namespace: str = "") -> V | None:
        return self.informer.store.get((namespace, name)) if self.served else None

    async def run(self) -> NoReturn:
        while True:
            if await self._is_served():
                await self._follow()
            await asyncio.sleep(self._look_seconds)

    async def _follow(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run(), name=f"informer-{self._resource.plural}")
            await self.informer.synced()
            self.served = self.known = True
            self._tell()
        raise AssertionError("an informer runs for ever")

    async def _is_served(self) -> bool:
        r = self._resource
        try:
            found = await self._api.request("GET", f"/apis/{r.group}/{r.version}")
        except NotFound:
            found = {}
        except ApiError as error:
            log.warning("whether %s.%s is there could not be asked: %s", r.plural, r.group, error)
            return False
        if any(each.get("name") == r.plural for each in found.get("resources") or ()):
            return True
        if not self.known:
            self.known = True
            self._tell()
        return False

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()
