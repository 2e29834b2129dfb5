"""What a controller asks before and after it creates a migration, so that no VMI migrates twice for one reason."""

import asyncio

from poolhouse.runtime.api import Api, find
from poolhouse.runtime.resource import VMIS
from poolhouse.stack.engine.informers import Informers
from poolhouse.stack.engine.objects import VMI, read_vmi


async def latest(api: Api, vmi: VMI) -> VMI | None:
    """The VMI as the API server has it; None if it is deleted. The informer of migrations may show that a migration has
    ended before the informer of VMIs shows what it has changed, and the VMI would migrate a second time."""
    found = await find(api, VMIS, *vmi.key)
    current = read_vmi(found) if found is not None else None
    return current if current is not None and current.uid == vmi.uid else None


async def await_migration(informers: Informers, namespace: str, name: str) -> None:
    """Waits until the informer shows the migration, because a reconcile before would create a second migration."""
    for _ in range(50):
        if informers.migrations.store.get((namespace, name)) is not None:
            return
        await asyncio.sleep(0.1)
