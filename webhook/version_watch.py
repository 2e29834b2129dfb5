"""Compares the versions of the defaulter with those of the nodes, now and then, and warns if the defaulter is newer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

from defaulter.contract import DefaulterUnavailable, Newer, Node, Version, newer_than_nodes
from poolhouse.api.kubevirt.versions import Release

log = logging.getLogger(__name__)

CHECK_SECONDS = 60.0


class VersionWatch:
    def __init__(
        self,
        read_version: Callable[[], Awaitable[Version]],
        nodes: Callable[[], Iterable[Node]],
        release: Callable[[], Release | None],
        report: Callable[[list[Newer] | None], None],
    ) -> None:
        """`read_version` raises DefaulterUnavailable. `report` gets None while the versions are unknown."""
        self._read_version, self._nodes, self._release, self._report = read_version, nodes, release, report
        self._warned: list[Newer] = []

    async def run(self) -> NoReturn:
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        try:
            version = await self._read_version()
        except DefaulterUnavailable as error:
            log.info("the versions of the defaulter are unknown: %s", error.reason)
            self._report(None)
            return
        found = newer_than_nodes(version, self._nodes(), self._release())
        self._report(found)
        for newer in found:
            if newer not in self._warned:
                log.warning("%s", newer)
        self._warned = found
