"""What the engine sees: one informer a kind, and the faults that are asked for now."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from kinds.meta import NAMESPACE, SIMULATION
from local.engine import reading
from local.engine.faults import Faults, read
from local.engine.resources import CLAIMS, CONFIG_MAPS, DATA_VOLUMES, INSTANCES, MACHINES, MIGRATIONS, NODES
from local.engine.views import Claim, Disk, Instance, Machine, Migration, Node, Pairs
from runtime.api import Api
from runtime.informer import Informer

log = logging.getLogger(__name__)


def now() -> datetime:
    return datetime.now(UTC)


class World:
    def __init__(self, api: Api) -> None:
        self.machines: Informer[Machine] = Informer(
            api, MACHINES, reading.machine, indexes={"claim": _claims_of_machine, "uid": lambda m: [m.uid]}
        )
        self.instances: Informer[Instance] = Informer(
            api, INSTANCES, reading.instance, indexes={"node": _node_of, "claim": _claims_of, "uid": lambda i: [i.uid]}
        )
        self.disks: Informer[Disk] = Informer(api, DATA_VOLUMES, reading.disk)
        self.claims: Informer[Claim] = Informer(api, CLAIMS, reading.claim)
        self.nodes: Informer[Node] = Informer(api, NODES, reading.node)
        self.migrations: Informer[Migration] = Informer(
            api, MIGRATIONS, reading.migration, indexes={"vmi": lambda m: [(m.namespace, m.vmi)]}
        )
        self.settings: Informer[Pairs] = Informer(
            api, CONFIG_MAPS, lambda d: reading.settings(d, SIMULATION), namespace=NAMESPACE
        )

    @property
    def all(self) -> tuple[Informer[object], ...]:
        return (self.machines, self.instances, self.disks, self.claims, self.nodes, self.migrations, self.settings)  # type: ignore[return-value]

    async def synced(self) -> None:
        await asyncio.gather(*(informer.synced() for informer in self.all))

    def missing(self) -> dict[str, str]:
        """What cannot be seen now, and why."""
        return {each.resource.plural: each.problem or "not listed" for each in self.all if not each.is_synced}

    def faults(self, *layers: Pairs) -> tuple[Faults, tuple[str, ...]]:
        """Those of the ConfigMap under what objects ask for themselves, nearest last."""
        return read([self.settings.store.get((NAMESPACE, SIMULATION)) or (), *layers])

    def faults_of(self, instance: Instance) -> tuple[Faults, tuple[str, ...]]:
        """What its VM asks for now, over what it was made with."""
        machine = self.machine_of(instance.owner)
        return self.faults(instance.faults, machine.faults if machine is not None else ())

    def machine_of(self, owner: str) -> Machine | None:
        """The VM of that UID."""
        return next(iter(self.machines.store.by("uid", owner)), None) if owner else None


def _claims_of_machine(machine: Machine) -> list[tuple[str, str]]:
    return [(machine.namespace, name) for name in {*machine.disks, *(v.claim for v in machine.volumes)}]


def _claims_of(instance: Instance) -> list[tuple[str, str]]:
    return [(instance.namespace, volume.claim) for volume in instance.volumes]


def _node_of(instance: Instance) -> list[str]:
    """Empty for those that are not placed yet."""
    return [] if instance.final else [instance.node]
