"""VMs and EC2 instances together: one cache over both, and a backend that routes each call."""

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
    """Reads two stores as one. Each has its own writer."""

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
        MergedStore(first.vms, second.vms), MergedStore(first.vmis, second.vmis), MergedStore(first.nodes, second.nodes)
    )


class RoutingBackend:
    """For calls whose pool may be gone: the VM alone, or the request, selects the backend."""

    def __init__(self, vms: Backend, instances: Backend, is_instance: Callable[[WarmVM], bool]) -> None:
        self._vms, self._instances, self._is_instance = vms, instances, is_instance

    def _of(self, vm: WarmVM) -> Backend:
        return self._instances if self._is_instance(vm) else self._vms

    async def create(self, request: CreateRequest) -> WarmVM:
        return await (self._vms if "spec" in request.template else self._instances).create(request)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return [m for each in (self._vms, self._instances) for m in await each.find(namespace, claim_uid)]

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return await self._of(vm).read(vm)

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        return await self._of(vm).change(vm, change)

    async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        return await self._of(vm).check(vm, readiness, timeout_seconds)

    async def activate(self, vm: WarmVM) -> None:
        await self._of(vm).activate(vm)

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        await self._of(vm).stand_by(vm, mode)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        return await self._of(vm).terminate(vm, reason)
