"""Histories of a pool that takes snapshots before an update, and whose users go back to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.kinds import meta
from poolhouse.runtime.resource import CONTROLLER_REVISIONS
from tests.histories.history import Act
from tests.histories.pools import PoolHistory, Users


class SnapshotUsers(Users):
    def acts(self) -> list[Callable[[], Awaitable[str]]]:
        return [*super().acts(), *[self.undo] * 6]

    async def undo(self) -> str:
        """Goes back to the revision before, with its disks, as `poolhouse rollout undo --restore-snapshots` does."""
        pool = await self.place.seen()
        revisions, _ = await self.place.api.list(CONTROLLER_REVISIONS, self.place.namespace)
        own = [each for each in revisions if (controller_of(each) or {}).get("uid") == pool["metadata"]["uid"]]
        numbered = sorted(own, key=lambda each: int(each["revision"]))
        if len(numbered) < 2:
            return ""
        chosen = numbered[-2]
        request = f"{chosen['metadata']['name']}={format_time(self.place.api.now())}"
        annotations = {**(pool["metadata"].get("annotations") or {}), meta.RESTORE: request}
        # Without a merge: the present template may spell `runStrategy` as `running`.
        spec = {**pool["spec"], "template": chosen["data"]["template"]}
        await self.place.api.replace(
            POOLS, {**pool, "metadata": {**pool["metadata"], "annotations": annotations}, "spec": spec}
        )
        return f"restore {request}"


class SnapshotHistory(PoolHistory):
    users: SnapshotUsers

    def make_users(self) -> SnapshotUsers:
        return SnapshotUsers(self.place, self.world.random, self.witness, strategy=self.strategy)

    def script(self) -> list[Act]:
        users = self.users
        return [
            lambda: users.scale(2),
            users.change_disk,
            users.undo,
            users.change_template,
            users.undo,
            users.break_one,
            lambda: users.scale(1),
            lambda: users.scale(3),
        ]
