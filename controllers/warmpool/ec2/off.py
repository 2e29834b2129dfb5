"""Stands in for EC2 where the controllers were given no region: whoever wants an instance is told why there is none."""

from __future__ import annotations

from controllers.warmpool.backends import Change, CreateRequest, Health, WriteConflict
from controllers.warmpool.ec2.settings import REGION
from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from kinds.warmpool import Readiness
from runtime.errors import Forbidden

WHY = f"these controllers hold no instances of EC2: set {REGION} for them, the region that instances are to be in"


class DisabledEC2Backend:
    async def create(self, order: CreateRequest) -> WarmVM:
        raise Forbidden(WHY, reason="Ec2Off")

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return []

    async def read(self, machine: WarmVM) -> WarmVM | None:
        return None

    async def change(self, machine: WarmVM, change: Change) -> WarmVM:
        raise WriteConflict(WHY)

    async def check(self, machine: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        return Health("Unable", "Ec2Off", WHY)

    async def activate(self, machine: WarmVM) -> None:
        raise WriteConflict(WHY)

    async def stand_by(self, machine: WarmVM, mode: StandbyMode) -> None:
        raise WriteConflict(WHY)

    async def terminate(self, machine: WarmVM, reason: str) -> bool:
        return False
