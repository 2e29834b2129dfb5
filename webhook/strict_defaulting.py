"""Refuses VMs that cannot get their hardware defaults now, where an administrator has asked for it.

By default such a VM is stored, and a controller completes it before its first start. With strict defaulting, no VM is
stored whose guest could see other hardware after a restart. The setting `POOLHOUSE_STRICT_DEFAULTING` asks for it in
the installation, and an annotation in one namespace. An edit of a stored VM is refused only for hardware that it adds.
The VMI of a stored VM is not refused, so that KubeVirt can always start the VM.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from defaulter.contract import MACPolicy, undefaulted_fields
from poolhouse.api.apimachinery.counting import join_first
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.errors import ApiError
from poolhouse.service.cpu_lane import compute
from webhook.admission import AdmissionHandler
from webhook.api_errors import cause_of
from webhook.defaulting import is_vmi_of_vm
from webhook.reasons import FailOpenReason
from webhook.review import AdmissionRequest, AdmissionResponse, annotations_of

log = logging.getLogger(__name__)

NAMESPACE_SECONDS = 0.5
"""With the two seconds for the defaulter, less than the three seconds that the API server waits."""
SHOWN_FIELDS = 3

_LATER = "Try again later"
WHAT_TO_DO: Mapping[FailOpenReason, str] = {
    FailOpenReason.DEFAULTER_UNAVAILABLE: _LATER,
    FailOpenReason.DEFAULTER_OVERLOADED: _LATER,
    FailOpenReason.DEFAULTER_CIRCUIT_OPEN: _LATER,
    FailOpenReason.HARDWARE_UNDECIDED: "Set these fields yourself, or choose a machine that the defaulter knows",
    FailOpenReason.INVALID_DEFAULTER_RESPONSE: "Tell an administrator, who finds the fields in the webhook's log",
    FailOpenReason.ADDED_WHILE_RUNNING: "Set these fields yourself, or stop the VM before you add the device",
    FailOpenReason.PREFERENCE_UNKNOWN: "Create the preference, or name one that exists",
}

ReadNamespace = Callable[[str], Awaitable[Json]]
"""reads a namespace by its name; raises ApiError"""


class StrictDefaulting:
    """Turns answers about VMs that stay without defaults into denials."""

    def __init__(
        self,
        defaulting: AdmissionHandler,
        read_namespace: ReadNamespace,
        *,
        everywhere: bool,
        macs: MACPolicy = "deterministic",
    ) -> None:
        self._defaulting, self._read_namespace = defaulting, read_namespace
        self._everywhere, self._macs = everywhere, macs

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        response = await self._defaulting.handle(request)
        if not isinstance(response.reason, FailOpenReason) or is_vmi_of_vm(request):
            return response
        fields = await compute(newly_undefaulted, request, response, self._macs)
        who = await self._who_asks(request.namespace) if fields else ""
        if not who:
            return response
        problem = Problem(_spec_of(request), refusal(response.reason, response.cause, fields, who))
        # The warnings are about the object that would be stored.
        return AdmissionResponse(problems=(problem,), reason=response.reason)

    async def _who_asks(self, namespace: str) -> str:
        """What asks for strict defaulting in the namespace; empty if nothing does."""
        if self._everywhere:
            return "POOLHOUSE_STRICT_DEFAULTING of this installation"
        try:
            async with asyncio.timeout(NAMESPACE_SECONDS):
                annotations = annotations_of(await self._read_namespace(namespace))
        except (ApiError, TimeoutError) as error:
            log.warning("strict defaulting: the namespace %s cannot be read: %s", namespace, cause_of(error))
            return ""
        # Another spelling, such as `yes`, means the same: who writes it wants no VM without defaults.
        is_strict = annotations.get(meta.STRICT_DEFAULTING, "").strip().lower() not in ("", "false")
        return f"the annotation {meta.STRICT_DEFAULTING} of the namespace" if is_strict else ""


def newly_undefaulted(request: AdmissionRequest, response: AdmissionResponse, macs: MACPolicy) -> list[str]:
    """Hardware fields that have no default in the answer, and that the stored object does not lack too."""
    stored = set(undefaulted_fields(request.old, macs=macs)) if request.old is not None else set()
    found = undefaulted_fields(response.object or request.object or {}, macs=macs)
    return [path for path in found if path not in stored]


def refusal(reason: FailOpenReason, cause: str, fields: list[str], who: str) -> str:
    why = f"{reason.doc.rstrip('.')}: {cause.rstrip('.')}." if cause else reason.doc
    shown = join_first(fields, SHOWN_FIELDS)
    return f"the hardware has no defaults ({shown}), and {who} refuses such VMs. {why} {WHAT_TO_DO[reason]}"


def _spec_of(request: AdmissionRequest) -> str:
    return "spec.template.spec" if request.kind == "VirtualMachine" else "spec"
