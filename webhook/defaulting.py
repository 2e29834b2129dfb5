"""Sets the hardware defaults of VirtualMachines and VirtualMachineInstances at admission, with the defaulter.

An unavailable defaulter does not stop a VM from being created. The VM is admitted unchanged, with the annotation
`poolhouse.dev/undefaulted`, and a controller defaults it before its first start. If the
defaulter refuses the spec, the VM is denied, because libvirt would refuse the same spec later on the node.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any

from defaulter.contract import (
    DefaulterClient,
    DefaulterOverloaded,
    DefaulterUnavailable,
    DefaultingResponse,
    ForbiddenChange,
    InvalidDocument,
    MACPolicy,
    UndecidedDocument,
    adopt,
    open_addresses,
    preserve_stored_values,
    undefaulted_fields,
)
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds.vm_documents import (
    is_restored,
    may_have_run,
    run_strategy,
    with_firmware_uuid,
    with_undefaulted,
)
from poolhouse.runtime.circuit_breaker import CircuitBreaker
from poolhouse.runtime.errors import ApiError
from poolhouse.service.cpu_lane import compute, is_costly
from webhook.api_errors import cause_of
from webhook.reasons import AdmissionReason, FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse, denied_or_tolerated

log = logging.getLogger(__name__)

DEFAULTED_KINDS = frozenset({("kubevirt.io/v1", "VirtualMachine"), ("kubevirt.io/v1", "VirtualMachineInstance")})


FindVMI = Callable[[str, str], Awaitable[Json | None]]
"""finds a VMI by namespace and name; raises ApiError"""


class NoDefaulter:
    """Allows VMs unchanged, if no defaulter is configured."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return AdmissionResponse(reason=AdmissionReason.SKIPPED)

    async def complete(self, document: Json, **_: Any) -> DefaultingResponse:
        raise DefaulterUnavailable("no defaulter is configured")

    async def recall(self, document: Json, **_: Any) -> None:
        return None


ANSWERED: Mapping[type[DefaulterUnavailable], FailOpenReason] = {
    ForbiddenChange: FailOpenReason.INVALID_DEFAULTER_RESPONSE,
    UndecidedDocument: FailOpenReason.HARDWARE_UNDECIDED,
    DefaulterOverloaded: FailOpenReason.DEFAULTER_OVERLOADED,
}
"""errors by which a service answers that works"""


class Question(Enum):
    """What other services are asked about a request."""

    NONE = auto()
    GUEST = auto()
    """the VMI of a VM that is being stopped and has undefaulted hardware"""
    DEFAULTS = auto()
    DEFAULTS_WHILE_RUNNING = auto()
    """the defaults of a VM, after its VMI, into which KubeVirt hotplugs a device"""


class DefaultingHandler:
    def __init__(
        self,
        defaulter: DefaulterClient,
        *,
        seed: str,
        budget_seconds: float,
        now: Callable[[], float],
        breaker: CircuitBreaker,
        find_vmi: FindVMI,
        macs: MACPolicy = "deterministic",
    ) -> None:
        """`budget_seconds` limits the time of all calls for a request, and is well below the webhook's timeout."""
        self._defaulter, self._seed, self._budget_seconds = defaulter, seed, budget_seconds
        self._find_vmi = find_vmi
        self._now, self._macs, self.breaker = now, macs, breaker

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        question = await compute(what_to_ask, request, self._macs)
        if question is Question.NONE:
            return AdmissionResponse(reason=AdmissionReason.SKIPPED)
        if question is Question.GUEST:
            return await self._adopt_guest(request)
        return await compute(await self._ask(request, question))

    async def _ask(self, request: AdmissionRequest, question: Question) -> Callable[[], AdmissionResponse]:
        """Asks the defaulter. Returns the function that computes the response from its answer."""
        deadline = self._now() + self._budget_seconds
        # A known answer is given before the breaker is asked, because it says nothing about the service.
        if request.old is None and (known := await self._recall(request)) is not None:
            return partial(admit, request, known, None, self._macs)
        self.breaker, allowed = self.breaker.allow(self._now())
        if not allowed:
            return partial(fail_open, request, FailOpenReason.DEFAULTER_CIRCUIT_OPEN, self._macs)
        try:
            async with asyncio.timeout(deadline - self._now()):
                vmi = await self._running_vmi(request, question)
                answer = await self._complete(request, with_stored_identity(request), request.old, vmi)
        except (DefaulterUnavailable, TimeoutError) as error:
            cause = error.reason if isinstance(error, UndecidedDocument) else ""
            return partial(fail_open, request, self._failed(error), self._macs, cause)
        except InvalidDocument as refusal:
            self.breaker = self.breaker.succeeded()
            stored = await self._stored_problems(request, deadline - self._now()) if request.old is not None else ()
            return partial(denied_or_tolerated, problems_in(refusal), stored)
        self.breaker = self.breaker.succeeded()
        return partial(admit, request, answer, vmi, self._macs)

    def _failed(self, error: DefaulterUnavailable | TimeoutError) -> FailOpenReason:
        """Tells the breaker of the error. A service that answers works, whatever its answer is."""
        # In a costly request, perhaps the request waited for the lane, and not for the defaulter.
        if isinstance(error, TimeoutError) and is_costly():
            return FailOpenReason.DEFAULTER_OVERLOADED
        for kind, reason in ANSWERED.items():
            if isinstance(error, kind):
                self.breaker = self.breaker.succeeded()
                if kind is ForbiddenChange:
                    log.error("ignored the defaulter's answer: %s", error)
                return reason
        self.breaker = self.breaker.failed(self._now())
        log.warning("the defaulter is unavailable: %s", str(error) or f"no answer within {self._budget_seconds:g} s")
        return FailOpenReason.DEFAULTER_UNAVAILABLE

    async def _running_vmi(self, request: AdmissionRequest, question: Question) -> Json | None:
        """The VMI into which KubeVirt hotplugs devices of an update; empty if it cannot be read. None without a VMI,
        and for an update that adds no device."""
        if request.kind == "VirtualMachineInstance":
            return request.old
        if question is not Question.DEFAULTS_WHILE_RUNNING:
            return None
        try:
            return await self._find_vmi(request.namespace, request.name)
        except ApiError as error:
            log.warning("VMI %s/%s cannot be read: %s", request.namespace, request.name, error)
            return {}

    async def _adopt_guest(self, request: AdmissionRequest) -> AdmissionResponse:
        """Writes what the running guest has into a VM that is being stopped, because KubeVirt would choose it anew at
        the next start, and the VMI is gone by then."""
        try:
            async with asyncio.timeout(self._budget_seconds):
                vmi = await self._find_vmi(request.namespace, request.name)
        except (ApiError, TimeoutError) as error:
            log.warning("VMI %s/%s cannot be read: %s", request.namespace, request.name, cause_of(error))
            return AdmissionResponse(reason=AdmissionReason.SKIPPED)
        return await compute(with_hardware_of, request, vmi, self._macs)

    async def _stored_problems(self, request: AdmissionRequest, seconds: float) -> tuple[Problem, ...]:
        """Problems of the stored object; none if the defaulter does not respond in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete(request, request.old or {}, None, None)
        except InvalidDocument as refusal:
            return problems_in(refusal)
        except (DefaulterUnavailable, TimeoutError):
            return ()
        return ()

    async def _complete(
        self, request: AdmissionRequest, document: Json, old: Json | None, vmi: Json | None
    ) -> DefaultingResponse:
        return await self._defaulter.complete(document, old=old, vmi=vmi, **self._about(request))

    async def _recall(self, request: AdmissionRequest) -> DefaultingResponse | None:
        return await self._defaulter.recall(request.object or {}, **self._about(request))

    def _about(self, request: AdmissionRequest) -> Json:
        # An object with generateName has no name yet. With the request's uid in the seed, its MAC addresses differ from
        # those of other objects, and are the same if the request is repeated.
        seed = self._seed or None if request.name else f"{self._seed}/{request.uid}"
        return {"namespace": request.namespace or None, "seed": seed, "may_have_run": guest_may_have_run(request)}


def what_to_ask(request: AdmissionRequest, macs: MACPolicy) -> Question:
    if runs_undefaulted(request, macs):
        return Question.GUEST if is_stopping(request) else Question.NONE
    if defaulted_by_its_vm(request, macs):
        return Question.NONE
    return Question.DEFAULTS_WHILE_RUNNING if adds_device(request) else Question.DEFAULTS


def admit(
    request: AdmissionRequest, answer: DefaultingResponse, vmi: Json | None, macs: MACPolicy
) -> AdmissionResponse:
    """Allows the VM with its defaults. Removes the annotation even if fields are unset, because the defaulter's
    settings leave such fields unset."""
    is_running_vm = request.kind == "VirtualMachine" and vmi is not None
    reason = FailOpenReason.ADDED_WHILE_RUNNING if is_running_vm and has_open_address(answer.object, macs) else None
    if answer.undecided:
        reason = FailOpenReason.PREFERENCE_UNKNOWN
    document = with_undefaulted(answer.object, reason)
    return AdmissionResponse(object=document, warnings=tuple(answer.warnings), reason=reason)


def problems_in(refusal: InvalidDocument) -> tuple[Problem, ...]:
    return tuple(Problem(problem.path, problem.message) for problem in refusal.problems)


def runs(request: AdmissionRequest) -> bool:
    """Whether the request concerns a VM with a VMI, or an existing VMI."""
    return request.kind == "VirtualMachineInstance" or at(request.object, "status", "created") is True


def is_stopping(request: AdmissionRequest) -> bool:
    """Whether the update stops the VM, for example by `virtctl stop`."""
    before, after = (run_strategy(typed(dict, each, "spec") or {}) for each in (request.old, request.object))
    return request.kind == "VirtualMachine" and before != "Halted" and after == "Halted"


def runs_undefaulted(request: AdmissionRequest, macs: MACPolicy) -> bool:
    """Whether the VM runs with undefaulted hardware. Such a VM gets its defaults after it stops, because a change of a
    running VM makes KubeVirt report that a restart is required. An address alone may be open, see `added_devices`."""
    if request.old is None or not runs(request):
        return False
    return any(not _is_address(path) for path in undefaulted_fields(request.old, macs=macs))


def has_open_address(document: Json, macs: MACPolicy) -> bool:
    """Whether a device has no PCI address."""
    return any(map(_is_address, undefaulted_fields(document, macs=macs)))


def _is_address(path: str) -> bool:
    return path.endswith(".pciAddress")


def defaulted_by_its_vm(request: AdmissionRequest, macs: MACPolicy) -> bool:
    """Whether the request creates the VMI of a VM with complete hardware. Such a VMI needs no call to the defaulter,
    because admission has checked the hardware with the VM."""
    started = request.operation == "CREATE" and is_vmi_of_vm(request)
    return started and not undefaulted_fields(request.object or {}, macs=macs)


def adds_device(request: AdmissionRequest) -> bool:
    """Whether the update adds a device to a VM with a VMI."""
    if request.kind != "VirtualMachine" or request.old is None or not runs(request):
        return False
    return bool(open_addresses(preserve_stored_values(request.object or {}, request.old)))


def with_hardware_of(request: AdmissionRequest, vmi: Json | None, macs: MACPolicy) -> AdmissionResponse:
    """Allows the VM, and copies the hardware of its running guest into the spec."""
    document = request.object or {}
    kept = adopt(document, vmi, macs)
    return AdmissionResponse(reason=AdmissionReason.SKIPPED) if kept == document else AdmissionResponse(object=kept)


def guest_may_have_run(request: AdmissionRequest) -> bool:
    """Whether the guest may have run before. A VMI with a VM counts, because its VM has no machine type yet."""
    if request.kind == "VirtualMachineInstance":
        return request.old is not None or is_vmi_of_vm(request)
    return is_restored(request.object or {}) or (request.old is not None and may_have_run(request.old))


def is_vmi_of_vm(request: AdmissionRequest) -> bool:
    owner = controller_of(request.object or {}) or {}
    return request.kind == "VirtualMachineInstance" and owner.get("kind") == "VirtualMachine"


def with_stored_identity(request: AdmissionRequest) -> Json:
    """The object to default. A VM that may have run without defaults keeps the firmware UUID that KubeVirt derived for
    it, for example in an update by `virtctl start`."""
    document, old = request.object or {}, request.old
    uuid = ("spec", "template", "spec", "domain", "firmware", "uuid")
    undefaulted_vm = request.kind == "VirtualMachine" and old is not None and not at(old, *uuid)
    return with_firmware_uuid(document) if undefaulted_vm and may_have_run(old or {}) else document


def fail_open(request: AdmissionRequest, reason: FailOpenReason, macs: MACPolicy, cause: str = "") -> AdmissionResponse:
    """Allows the VM without defaults, with a warning and an annotation. An update keeps the defaults of the stored
    object, so that `kubectl apply` of a manifest without addresses does not change the addresses of the VM."""
    document = request.object or {}
    if request.old is not None:
        document = preserve_stored_values(document, request.old)
    paths = undefaulted_fields(document, macs=macs)
    if not paths:
        return AdmissionResponse(object=document, reason=reason)
    if reason is FailOpenReason.HARDWARE_UNDECIDED:
        warning = f"{len(paths)} hardware fields have no default, and libvirt chooses them at each start: {cause}"
    else:
        warning = f"{len(paths)} hardware fields have no default yet and get one before the next start. {reason.doc}"
    return AdmissionResponse(object=with_undefaulted(document, reason), warnings=(warning,), reason=reason, cause=cause)
