"""The verdict on a kind of ours, from its declaration alone: every problem at once, and the form that is stored.

It is asked before the API server holds the object against its schema, so one answer carries what the schema would
refuse as well as what only we can know.
"""

from __future__ import annotations

from kinds.kind import Kind
from webhook.review import AdmissionRequest, AdmissionResponse, denied_or_tolerated


def validate_kind(request: AdmissionRequest, kind: Kind) -> AdmissionResponse:
    document = kind.normalize(request.object or {})
    # A rule that became stricter must not lock up what was stored before it: see `judged`.
    before = kind.problems(kind.normalize(request.old)) if request.old is not None else ()
    verdict = denied_or_tolerated(kind.problems(document), before)
    misdeeds = kind.misdeeds(request.old, document)
    if verdict.problems or misdeeds:
        return AdmissionResponse(problems=(*verdict.problems, *misdeeds))
    return AdmissionResponse(
        object=document, warnings=(*verdict.warnings, *kind.warnings(document)), reason=verdict.reason
    )
