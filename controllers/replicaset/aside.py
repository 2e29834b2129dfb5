"""Works only on clusters where the resource is ours.

KubeVirt has this very resource, and virt-controller keeps its sets. Two controllers of one set would each make all of
its instances. So it is asked whose definition the cluster has, again and again: KubeVirt may be installed after us.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NoReturn

from kinds.crd import is_ours
from kinds.kind import Kind
from runtime.api import Api
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""between two looks"""

DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)

Whose = Literal["ours", "another's", "nobody's"]

SENTENCES: dict[Whose, str] = {
    "ours": "%s is Poolhouse's on this cluster: its controller is at work",
    "another's": "%s is not Poolhouse's on this cluster: its controller stands aside",
    "nobody's": "%s is not installed on this cluster: its controller waits for it",
}


class NotOurs(Exception):
    """Not any more."""


class Aside:
    def __init__(
        self, api: Api, kind: Kind, work: Callable[[], Coroutine[Any, Any, None]], *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        """`work` is begun anew whenever the resource has become ours."""
        self._api = api
        self._name = kind.crd_name
        self._work = work
        self._look_seconds = look_seconds
        self._known: Whose | None = None

    async def run(self) -> NoReturn:
        self._known = None
        while True:
            await self._look()
            if self._known == "ours":
                await self._work_while_ours()
            else:
                await asyncio.sleep(self._look_seconds)

    async def _work_while_ours(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(), name="replicaset-work")
                while self._known == "ours":
                    await asyncio.sleep(self._look_seconds)
                    await self._look()
                raise NotOurs
        except* NotOurs:
            pass

    async def _look(self) -> None:
        """What cannot be asked now stays as it was known."""
        try:
            whose: Whose = "ours" if is_ours(await self._api.get(DEFINITIONS, None, self._name)) else "another's"
        except NotFound:
            whose = "nobody's"
        except ApiError as error:
            log.warning("whose %s is could not be asked: %s", self._name, error)
            return
        if whose != self._known:
            self._known = whose
            log.info(SENTENCES[whose], self._name)
