"""The interface of the backends that hold warm VMs: VirtualMachines (`vm_backend`) or EC2 instances (`ec2`).

Exceptions of the methods:

    WriteConflict      the VM has changed, and the backend wrote nothing: read the VM and decide again
    OutcomeUnknown     the server may have done the write: call `find` or `read` before another write
    InvalidTransition  the VM's state forbids the change, a bug of the caller: the backend sent no request
    ApiError           the server refused the write (quota, invalid template, too many requests)

The first two are errors of the API, too, so catch them first.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from controllers.sets.write_batches import error_message
from controllers.warmpool.warm_vm import Owner, StandbyMode, WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.warm_readiness import Readiness
from poolhouse.api.kinds.warm_states import WarmState, may_follow, may_return
from poolhouse.runtime.errors import OUTCOME_UNKNOWN, Conflict, Unreachable


class WriteConflict(Conflict): ...


class OutcomeUnknown(Unreachable): ...


class InvalidTransition(Exception): ...


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translates errors of calls without a response into OutcomeUnknown."""
    try:
        yield
    except OUTCOME_UNKNOWN as error:
        raise OutcomeUnknown(error_message(error)) from error


@dataclass(frozen=True)
class CreateRequest:
    namespace: str
    name: str
    pool: str
    pool_uid: str
    owner: Owner
    """The controller of the new VM: the pool, or the claim that needs the VM."""
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
    repeated: bool = True
    """Whether an existing VM of this name may be from an earlier call without an answer. Others know the names of VMs
    for claims before the VMs exist."""


@dataclass(frozen=True)
class Change:
    """One write to a VM. None keeps a field. A label or annotation with the value None is removed."""

    state: WarmState | None = None
    claim_uid: str | None = None
    """An empty string removes the claim's UID."""
    owner: Owner | None = None
    """The new controller reference. NO_OWNER removes the reference."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """The result of a health check. `Unable`: the check could not run, so the health is unknown."""

    verdict: Literal["Healthy", "Failed", "Unable"]
    reason: str = ""
    message: str = ""


HEALTHY = Health("Healthy")


class Backend(Protocol):
    async def create(self, request: CreateRequest) -> WarmVM:
        """Creates a VM, or returns the VM that an earlier call with a lost response created. That VM has the same name,
        owner, claim and pool. For any other VM of this name, raises AlreadyExists."""

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        """Reads the VMs with this claim's UID from the API."""

    async def read(self, vm: WarmVM) -> WarmVM | None:
        """Reads the VM with the same UID from the API."""

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        """Writes the change, and the time of a new state. Raises WriteConflict if the VM has changed since the read."""

    async def check(
        self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0, pod: Json | None = None
    ) -> Health:
        """Checks the health of a running VM. The timeout applies to probes of the guest. `pod` is the application that
        an agent in a reserved VM launches. Without it, the agent of an EC2 instance chooses."""

    async def check_application(self, vm: WarmVM, timeout_seconds: float = 5.0) -> Health:
        """The health of the application that the agent in the VM has launched."""

    async def terminate_application(self, vm: WarmVM, uid: str, grace_seconds: float, timeout_seconds: float) -> None:
        """Asks the agent in the VM to stop the application with this UID. Ignores an agent that does not answer."""

    def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        """The health of the application whenever it changes. Ends if the agent offers no watch or does not answer."""

    async def activate(self, vm: WarmVM) -> bool:
        """Starts or unpauses the VM if it is not running. Returns whether a paused guest runs again."""

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        """Pauses, stops or starts the VM if it is not in that mode."""

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        """Deletes the VM. Returns False, without a deletion, if the VM has changed since the read. Returns True for a
        VM that no longer exists."""


class RoutingBackend:
    """Selects the backend by the VM or the request alone, for calls whose pool may be deleted."""

    def __init__(self, vms: Backend, instances: Backend, is_instance: Callable[[WarmVM], bool]) -> None:
        self._vms, self._instances, self._is_instance = vms, instances, is_instance

    def _of(self, vm: WarmVM) -> Backend:
        return self._instances if self._is_instance(vm) else self._vms

    async def create(self, request: CreateRequest) -> WarmVM:
        return await (self._vms if "spec" in request.template else self._instances).create(request)

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return [vm for each in (self._vms, self._instances) for vm in await each.find(namespace, claim_uid)]

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return await self._of(vm).read(vm)

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        return await self._of(vm).change(vm, change)

    async def check(
        self, vm: WarmVM, readiness: Readiness, timeout_seconds: float = 5.0, pod: Json | None = None
    ) -> Health:
        return await self._of(vm).check(vm, readiness, timeout_seconds, pod)

    async def check_application(self, vm: WarmVM, timeout_seconds: float = 5.0) -> Health:
        return await self._of(vm).check_application(vm, timeout_seconds)

    async def terminate_application(self, vm: WarmVM, uid: str, grace_seconds: float, timeout_seconds: float) -> None:
        await self._of(vm).terminate_application(vm, uid, grace_seconds, timeout_seconds)

    def watch_application(self, vm: WarmVM) -> AsyncIterator[Health]:
        return self._of(vm).watch_application(vm)

    async def activate(self, vm: WarmVM) -> bool:
        return await self._of(vm).activate(vm)

    async def stand_by(self, vm: WarmVM, mode: StandbyMode) -> None:
        await self._of(vm).stand_by(vm, mode)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        return await self._of(vm).terminate(vm, reason)


def check_transition(vm: WarmVM, change: Change) -> None:
    """Raises InvalidTransition if the VM's state or claim forbids the change."""
    if change.claim_uid and vm.claim_uid not in ("", change.claim_uid):
        raise InvalidTransition(f"{vm.name} has claim {vm.claim_uid}, and can't get claim {change.claim_uid}")
    after = change.state
    if after is None or may_follow(vm.state, after):
        return
    returned = may_return(vm.state, activated=vm.activated) and change.claim_uid == ""
    if not (after is WarmState.READY and returned):
        before = vm.state.value if vm.state else "in no state"
        raise InvalidTransition(f"{vm.name} is {before} and can't become {after.value}")
