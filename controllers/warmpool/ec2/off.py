"""Stands in for EC2 where the controllers were given no region: whoever wants an instance is told why there is none."""

from __future__ import annotations

from controllers.warmpool.backends import Change, Health, Lost, Order
from controllers.warmpool.ec2.settings import REGION
from controllers.warmpool.warm_vm import Machine, Standby
from kinds.warmpool import Readiness
from runtime.errors import Forbidden

WHY = f"these controllers hold no instances of EC2: set {REGION} for them, the region that instances are to be in"


class DisabledEC2Backend:
    async def create(self, order: Order) -> Machine:
        raise Forbidden(WHY, reason="Ec2Off")

    async def find(self, namespace: str, claim_uid: str) -> list[Machine]:
        return []

    async def read(self, machine: Machine) -> Machine | None:
        return None

    async def change(self, machine: Machine, change: Change) -> Machine:
        raise Lost(WHY)

    async def check(self, machine: Machine, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        return Health("Unable", "Ec2Off", WHY)

    async def activate(self, machine: Machine) -> None:
        raise Lost(WHY)

    async def stand_by(self, machine: Machine, mode: Standby) -> None:
        raise Lost(WHY)

    async def terminate(self, machine: Machine, reason: str) -> bool:
        return False
