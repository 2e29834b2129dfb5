"""Waits for a live migration: switches it to post-copy or aborts it at its timeout, and aborts it when cancelled."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from local.engine.hypervisor import Switched

MAX_ABORTS = 15
RETRY_SECONDS = 1.0
"""pause between tries of an operation that QEMU refuses"""


class MigrationTimeout(Exception):
    """The migration was aborted at its timeout. `progress` is libvirt's last job statistics."""

    def __init__(self, progress: Mapping[str, int]) -> None:
        self.progress = progress


class MigrationJob(Protocol):
    """The migration job on the source node. No method raises; the caller retries what failed."""

    async def start_post_copy(self) -> bool:
        """Whether the domain runs on its target from now on, while its memory follows."""

    async def abort(self) -> None: ...

    async def progress(self) -> Mapping[str, int]:
        """Job statistics; empty if they are unknown."""


async def await_migration(
    migration: asyncio.Task[None],
    job: MigrationJob,
    seconds: float | None,
    switched: Switched | None,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Returns when the domain has migrated. Raises when it has not, and then it runs where it was: MigrationTimeout, or
    the error of `migration`.

    With `switched`, the migration switches to post-copy at the timeout and calls it. A cancelled call aborts the
    migration, and returns normally if the domain has migrated all the same.
    """
    try:
        await _conduct(migration, job, seconds, switched, retry_seconds)
    except BaseException:
        # No migration may go on after this call has ended.
        if await _aborted(migration, job, retry_seconds):
            raise


async def _conduct(
    migration: asyncio.Task[None],
    job: MigrationJob,
    seconds: float | None,
    switched: Switched | None,
    retry_seconds: float,
) -> None:
    done, _ = await asyncio.wait({migration}, timeout=seconds)
    if not done and switched is not None:
        if await _switched_to_post_copy(migration, job, retry_seconds):
            await switched()
    elif not done:
        progress = await job.progress()
        if await _aborted(migration, job, retry_seconds):
            raise MigrationTimeout(progress)
    await asyncio.shield(migration)


async def _switched_to_post_copy(migration: asyncio.Task[None], job: MigrationJob, retry_seconds: float) -> bool:
    """False if the migration ended first."""
    while not migration.done():
        # QEMU refuses before the first byte and after the last one, so one try is not enough.
        if await job.start_post_copy():
            return True
        await asyncio.wait({migration}, timeout=retry_seconds)
    return False


async def _aborted(migration: asyncio.Task[None], job: MigrationJob, retry_seconds: float) -> bool:
    """False if the domain has migrated all the same."""
    for _ in range(MAX_ABORTS):
        if migration.done():
            break
        await job.abort()
        await asyncio.wait({migration}, timeout=retry_seconds)
    # A migration that cannot be aborted any more completes.
    await asyncio.wait({migration})
    return migration.exception() is not None
