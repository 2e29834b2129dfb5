"""A kind that this cluster may not have: looked for until it is there, and followed until it is gone."""

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


class OptionalInformer(Generic[V]):
    """Asking for what is not there would end in an informer that never syncs, and in a warning every half minute."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        view: Callable[[dict[str, Any]], V],
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.known = False
        """whether it is known what there is: that the kind is missing, or all of its objects"""
        self._api = api
        self._resource = resource
        self._view = view
        self._look_seconds = look_seconds
        self._informer: Informer[V] | None = None
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed()` when an object changes, and when it comes to be known whether there can be any."""
        self._subscribers.append(changed)

    @property
    def served(self) -> bool:
        return self._informer is not None

    @property
    def all(self) -> list[V]:
        return self._informer.store.all() if self._informer is not None else []

    def get(self, name: str, namespace: str = "") -> V | None:
        return self._informer.store.get((namespace, name)) if self._informer is not None else None

    async def run(self) -> NoReturn:
        try:
            while True:
                if served := await self._is_served():
                    await self._follow()
                elif served is not None and not self.known:
                    self.known = True
                    self._tell()
                await asyncio.sleep(self._look_seconds)
        finally:
            # Whoever comes back to it must not take for true what was.
            self._informer, self.known = None, False

    async def _follow(self) -> None:
        """Until the kind is gone."""
        informer = Informer(self._api, self._resource, self._view)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (informer.run(), self._begin(informer))]
            gone = False
            while not gone:
                await asyncio.sleep(self._look_seconds)
                # Nobody needs to be asked of what can be seen, and one that cannot be seen may be there all the same.
                gone = informer.problem is not None and await self._is_served() is False
            for task in tasks:
                task.cancel()
        self._informer, self.known = None, True
        self._tell()

    async def _begin(self, informer: Informer[V]) -> None:
        await informer.synced()
        self._informer, self.known = informer, True
        self._tell()
        informer.subscribe(lambda old, new: self._tell())

    async def _is_served(self) -> bool | None:
        """None where that could not be asked."""
        r = self._resource
        try:
            found = await self._api.request("GET", f"/apis/{r.group}/{r.version}")
        except NotFound:
            return False
        except ApiError as error:
            log.warning("whether %s.%s is there could not be asked: %s", r.plural, r.group, error)
            return None
        return any(each.get("name") == r.plural for each in found.get("resources") or ())

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()
