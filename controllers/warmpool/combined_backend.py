"""Machines in two places, read as one: VirtualMachines, and instances of EC2."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from controllers.warmpool.backends import Backend, Change, CreateRequest, Health
from controllers.warmpool.cache import WarmVMCache
from controllers.warmpool.warm_vm import StandbyMode, WarmVM
from kinds.warmpool import Readiness
from runtime.resource import Key
from runtime.store import Store

V = TypeVar("V")


class MergedStore(Store[V]):
    """Two stores as one. Written through neither of them: each has its own writer."""

    def __init__(self, first: Store[V], second: Store[V]) -> None:
        super().__init__()
        self._first, self._second = first, second

    def get(self, key: Key) -> V | None:
        found = self._first.get(key)
        return found if found is not None else self._second.get(key)

    def by(self, index: str, value: Hashable) -> list[V]:
        return self._first.by(index, value) + self._second.by(index, value)

    def all(self) -> list[V]:
        return self._first.all() + self._second.all()

    def __len__(self) -> int:
        return len(self._first) + len(self._second)


def merge_caches(first: WarmVMCache, second: WarmVMCache) -> WarmVMCache:
    return WarmVMCache(
        MergedStore(first.vms, second.vms),
        MergedStore(first.vmis, second.vmis),
        MergedStore(first.nodes, second.nodes),
    )


class RoutingBackend:
    """Who holds a machine, where only the machine is known: its pool may be gone."""

    def __init__(self, vms: Backend, instances: Backend, is_instance: Callable[[WarmVM], bool]) -> None:
        self._vms, self._instances, self._is_instance = vms, instances, is_instance

    def _of(self, machine: WarmVM) -> Backend:
        return self._instances if self._is_instance(machine) else self._vms

    async def create(self, order: CreateRequest) -> WarmVM:
        return await (self._vms if "spec" in order.template else self._instances).create(order)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return [m for each in (self._vms, self._instances) for m in await each.find(namespace, claim_uid)]

    async def read(self, machine: WarmVM) -> WarmVM | None:
        return await self._of(machine).read(machine)

    async def change(self, machine: WarmVM, change: Change) -> WarmVM:
        return await self._of(machine).change(machine, change)

    async def check(self, machine: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        return await self._of(machine).check(machine, readiness, timeout_seconds)

    async def activate(self, machine: WarmVM) -> None:
        await self._of(machine).activate(machine)

    async def stand_by(self, machine: WarmVM, mode: StandbyMode) -> None:
        await self._of(machine).stand_by(machine, mode)

    async def terminate(self, machine: WarmVM, reason: str) -> bool:
        return await self._of(machine).terminate(machine, reason)
