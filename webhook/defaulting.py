"""The verdict on a VirtualMachine or VirtualMachineInstance, once the defaulter was asked.

Who is away does not stop a VM from being created: it is stored as it came, and says so itself, for the controller that
completes it before its first start. Who answers that the spec is wrong does stop it: libvirt would refuse the same spec
on the node, later, where nobody is looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apimachinery.unstructured import at
from defaulter.contract import MACPolicy, preserve_stored_values, undefaulted_fields
from kinds.meta import UNDEFAULTED
from kinds.started import may_have_run, with_identity
from webhook.review import AdmissionRequest, AdmissionResponse
from webhook.scope import annotations_of, metadata_of

Json = dict[str, Any]

AWAY = "DefaulterAway"
RESTING = "DefaulterResting"
OVERREACH = "AnswerNotTaken"

FAIL_OPEN: Mapping[str, str] = {
    AWAY: "the defaulter gave no answer",
    RESTING: "the defaulter gave no answers just now and is not asked for a moment",
    OVERREACH: "the defaulter's answer changed what it must not and was not taken",
}
"""reasons for letting a VM through: in annotations and metrics, and as sentences"""

KINDS = frozenset({("kubevirt.io/v1", "VirtualMachine"), ("kubevirt.io/v1", "VirtualMachineInstance")})


def waits_for_stop(request: AdmissionRequest, macs: MACPolicy) -> bool:
    """A VM that runs undecided stays so until it stops: hardware that is written under it would only say that it must
    be restarted."""
    runs = at(request.object, "status", "created") is True
    return runs and request.old is not None and bool(undefaulted_fields(request.old, macs=macs))


def comes_decided(request: AdmissionRequest, macs: MACPolicy) -> bool:
    """An instance that a VirtualMachine starts, as complete as that VM: it was judged when the VM was stored, and every
    start of every VM would cost libvirt a second time."""
    owners = at(request.object, "metadata", "ownerReferences")
    started = request.kind == "VirtualMachineInstance" and any(
        at(owner, "kind") == "VirtualMachine" and at(owner, "controller") is True
        for owner in (owners if isinstance(owners, list) else ())
    )
    return started and request.operation == "CREATE" and not undefaulted_fields(request.object or {}, macs=macs)


def known(request: AdmissionRequest) -> Json:
    """The object to be completed. A VM that may have run undecided keeps the UUID that it had then: `virtctl start` of
    one that is older than we are is a change of its spec."""
    document, old = request.object or {}, request.old
    identity = ("spec", "template", "spec", "domain", "firmware", "uuid")
    undecided = request.kind == "VirtualMachine" and old is not None and not at(old, *identity)
    return with_identity(document) if undecided and may_have_run(old or {}) else document


def completed(answer: Json, warnings: Iterable[str]) -> AdmissionResponse:
    """The defaulter answered. What it left open now, its settings leave open."""
    if UNDEFAULTED in annotations_of(answer):
        answer = _annotated(answer, None)
    return AdmissionResponse(object=answer, warnings=tuple(warnings))


def passed(request: AdmissionRequest, reason: str, macs: MACPolicy) -> AdmissionResponse:
    """Fail open: allowed as it came, with a warning, and the reason as an annotation until somebody completes it. On
    UPDATE with what the stored object had decided: a bare manifest applied again must not cost a VM its addresses."""
    asked = request.object or {}
    if request.old is not None:
        asked = preserve_stored_values(asked, request.old)
    paths = undefaulted_fields(asked, macs=macs)
    if not paths:
        return AdmissionResponse(object=asked, reason=reason)
    warning = f"{FAIL_OPEN[reason]}: {len(paths)} hardware fields are undecided and will be before the next start"
    return AdmissionResponse(object=_annotated(asked, reason), warnings=(warning,), reason=reason)


def _annotated(document: Json, reason: str | None) -> Json:
    kept = {key: value for key, value in annotations_of(document).items() if key != UNDEFAULTED}
    added = {} if reason is None else {UNDEFAULTED: reason}
    return {**document, "metadata": {**metadata_of(document), "annotations": {**kept, **added}}}
