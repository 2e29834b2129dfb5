"""The verdict on a VirtualMachine or VirtualMachineInstance, once the defaulter was asked.

Who is away does not stop a VM from being created: it is stored as it came, and says so itself, for the controller that
completes it before its first start. Who answers that the spec is wrong does stop it: libvirt would refuse the same spec
on the node, later, where nobody is looking.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from defaulter.contract import kept, undefaulted
from kinds.meta import UNDEFAULTED
from webhook.review import Request, Verdict
from webhook.scope import metadata, notes

Json = dict[str, Any]

AWAY = "DefaulterAway"
RESTING = "DefaulterResting"
OVERREACH = "AnswerNotTaken"

KINDS = frozenset({("kubevirt.io/v1", "VirtualMachine"), ("kubevirt.io/v1", "VirtualMachineInstance")})


def completed(answer: Json, warnings: Iterable[str]) -> Verdict:
    """The defaulter answered."""
    if UNDEFAULTED in notes(answer) and not undefaulted(answer):
        answer = _annotated(answer, None)
    return Verdict(object=answer, warnings=tuple(warnings))


def passed(request: Request, told: str, reason: str = AWAY) -> Verdict:
    """Fail open: allowed as it came, with a warning, and the reason as an annotation until somebody completes it. On
    UPDATE with what the stored object had decided: a bare manifest applied again must not cost a VM its addresses."""
    asked = request.object or {}
    if request.old is not None:
        asked = kept(asked, request.old)
    paths = undefaulted(asked)
    if not paths:
        return Verdict(object=asked, news=reason)
    warning = f"stored with {len(paths)} hardware fields undecided, to be completed before its next start: {told}"
    return Verdict(object=_annotated(asked, reason), warnings=(warning,), news=reason)


def checked(request: Request) -> Verdict:
    """After every other webhook: whether one of them put in hardware that nobody decided. Nothing is denied for it, as
    it is completed before its next start."""
    asked = request.object or {}
    paths = [] if UNDEFAULTED in notes(asked) else undefaulted(asked)
    if not paths:
        return Verdict()
    return Verdict(warnings=(f"{paths[0]} was left open after hardware was decided; is another webhook asked later?",))


def _annotated(document: Json, reason: str | None) -> Json:
    kept = {key: value for key, value in notes(document).items() if key != UNDEFAULTED}
    added = {} if reason is None else {UNDEFAULTED: reason}
    return {**document, "metadata": {**metadata(document), "annotations": {**kept, **added}}}
