"""Waits for a live migration. Lets it end or aborts it at the timeout, and aborts it after a cancellation."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from poolhouse.stack.engine.hypervisor import Switched

MAX_ABORTS = 15
RETRY_SECONDS = 1.0
"""pause between tries of an operation that QEMU refused"""


class MigrationTimeout(Exception):
    """The migration was aborted at its timeout. `progress` is libvirt's last job statistics."""

    def __init__(self, progress: Mapping[str, int]) -> None:
        self.progress = progress


class MigrationJob(Protocol):
    """The migration job on the source node. The methods do not raise; the caller retries failed operations."""

    async def disrupt(self) -> bool:
        """Switches to post-copy, or pauses the guest. Returns whether libvirt accepted it."""

    async def abort(self) -> None: ...

    async def progress(self) -> Mapping[str, int]:
        """Returns job statistics; empty if they are unknown."""


async def await_migration(
    migration: asyncio.Task[None],
    job: MigrationJob,
    seconds: float | None,
    switched: Switched | None,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Returns when the domain has migrated. Otherwise the domain runs on its source node, and the call raises
    MigrationTimeout or the error of `migration`.

    With `switched`, the migration disrupts the guest at the timeout and then calls `switched`. A cancelled call aborts
    the migration; the call returns normally if the migration has already succeeded.
    """
    try:
        await _conduct(migration, job, seconds, switched, retry_seconds)
    except BaseException:
        # The migration must not continue after this call.
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
        if await _disrupted(migration, job, retry_seconds):
            await switched()
    elif not done:
        progress = await job.progress()
        if await _aborted(migration, job, retry_seconds):
            raise MigrationTimeout(progress)
    await asyncio.shield(migration)


async def _disrupted(migration: asyncio.Task[None], job: MigrationJob, retry_seconds: float) -> bool:
    """Retries the disruption. Returns False if the migration ends first."""
    while not migration.done():
        # QEMU refuses post-copy before the first byte and after the last byte, so a single try is not enough.
        if await job.disrupt():
            return True
        await asyncio.wait({migration}, timeout=retry_seconds)
    return False


async def _aborted(migration: asyncio.Task[None], job: MigrationJob, retry_seconds: float) -> bool:
    """Retries the abort. Returns False if the migration succeeds nevertheless."""
    for _ in range(MAX_ABORTS):
        if migration.done():
            break
        await job.abort()
        await asyncio.wait({migration}, timeout=retry_seconds)
    # A migration that can no longer be aborted completes.
    await asyncio.wait({migration})
    return migration.exception() is not None
