"""The interface to what holds warm VMs: VirtualMachines (`vm_backend`) or EC2 instances (`ec2`).

The exceptions of a call tell the caller how to continue:

    WriteConflict      the VM has changed and nothing was written: read it and decide again
    OutcomeUnknown     no answer, so the write may have been done: call `find` or `read` before another write
    InvalidTransition  the VM's state does not allow the change, which is a bug of the caller: nothing was sent
    ApiError           the write was refused (quota, invalid template, too many requests): nothing was written
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from apimachinery.unstructured import Json
from controllers.warmpool.warm_vm import Owner, StandbyMode, WarmVM
from kinds.warm_states import WarmState, may_follow, may_return
from kinds.warmpool import Readiness
from runtime.errors import OUTCOME_UNKNOWN


class WriteConflict(Exception): ...


class OutcomeUnknown(Exception): ...


class InvalidTransition(Exception): ...


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises OutcomeUnknown for a call that was not answered."""
    try:
        yield
    except OUTCOME_UNKNOWN as error:
        raise OutcomeUnknown(str(error)) from error


@dataclass(frozen=True)
class CreateRequest:
    namespace: str
    name: str
    pool: str
    pool_uid: str
    owner: Owner
    """The pool, or the claim for which the VM is created."""
    template: Json
    """The pool's `template` or `ec2`, with the overrides of a claim."""
    template_hash: str
    placement: Json = field(default_factory=dict)
    """An entry of the pool's `placements`."""
    state: WarmState = WarmState.PROVISIONING
    standby: StandbyMode = "Running"
    claim_uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One write. None keeps a field; a label or annotation of None is removed."""

    state: WarmState | None = None
    claim_uid: str | None = None
    """An empty string removes the claim."""
    owner: Owner | None = None
    """The new controller; NO_OWNER removes it."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """The result of a check. Unable: the check could not run, which says nothing about the VM."""

    verdict: Literal["Healthy", "Failed", "Unable"]
    reason: str = ""
    message: str = ""


HEALTHY = Health("Healthy")


class Backend(Protocol):
    async def create(self, request: CreateRequest) -> WarmVM:
        """Creates a VM. It returns an existing VM of the same name if that has the same owner, claim and pool: the
        answer to an earlier call was lost. It raises AlreadyExists for any other VM of that name."""

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        """VMs that carry this claim's UID, read from the API."""

    async def read(self, vm: WarmVM) -> WarmVM | None:
        """The VM with the same UID, read from the API."""

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        """Writes the change unless the VM has changed since it was read. It stores the time of a new state."""

    async def check(self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0) -> Health:
        """Checks whether the VM is healthy as a running VM. The timeout is for probes of the guest."""

    async def activate(self, vm: WarmVM) -> None:
        """Starts or unpauses the VM if it is not running."""

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        """Pauses, stops or activates the VM if it is not in that mode."""

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        """Deletes the VM. False: the VM has changed since it was read, and nothing was done. True also for a VM that is
        already gone."""


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


def check_transition(vm: WarmVM, change: Change) -> None:
    """Raises InvalidTransition for a change that the VM's state or claim forbids."""
    if change.claim_uid and vm.claim_uid not in ("", change.claim_uid):
        raise InvalidTransition(f"{vm.name} has claim {vm.claim_uid}, and can't get claim {change.claim_uid}")
    after = change.state
    if after is None or may_follow(vm.state, after):
        return
    returned = may_return(vm.state, activated=vm.activated) and change.claim_uid == ""
    if not (after is WarmState.READY and returned):
        before = vm.state.value if vm.state else "in no state"
        raise InvalidTransition(f"{vm.name} is {before} and can't become {after.value}")
