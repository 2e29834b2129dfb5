"""What admission writes into a claim: who made it, because its pool may limit what one user has, and as fields what its
annotations say.

A maker's name that somebody changed is put back rather than refused: a client that replaces the whole object means no
harm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kinds.claim_checks import told
from kinds.meta import REQUESTER
from webhook.review import AdmissionRequest, AdmissionResponse
from webhook.scope import annotations_of

Json = dict[str, Any]

_WARNING = f"metadata.annotations[{REQUESTER}] says who made the claim, as the API server knows it; it stays as it was"


def complete_claim(request: AdmissionRequest, verdict: AdmissionResponse) -> AdmissionResponse:
    """The verdict on a right claim, as it is stored."""
    document = verdict.object or request.object or {}
    if request.old is None:
        document = told(document)
    return _signed(request, replace(verdict, object=document), document)


def _signed(request: AdmissionRequest, verdict: AdmissionResponse, document: Json) -> AdmissionResponse:
    given = annotations_of(document)
    name = request.user.get("username") if request.old is None else annotations_of(request.old).get(REQUESTER)
    kept = {key: value for key, value in given.items() if key != REQUESTER}
    wanted = {**kept, REQUESTER: name} if isinstance(name, str) and name else kept
    if wanted == given:
        return verdict
    warnings = (*verdict.warnings, _WARNING) if given.get(REQUESTER) not in (None, name) else verdict.warnings
    return replace(
        verdict, object={**document, "metadata": {**document["metadata"], "annotations": wanted}}, warnings=warnings
    )
