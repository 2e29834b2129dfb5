"""The verdict on a kind of ours, from its declaration alone: every problem at once, and the form that is stored.

It is asked before the API server holds the object against its schema, so one answer carries what the schema would
refuse as well as what only we can know.
"""

from __future__ import annotations

from kinds.kind import Kind
from webhook.review import Request, Verdict, judged


def examined(request: Request, kind: Kind) -> Verdict:
    document = kind.normalize(request.object or {})
    # A rule that became stricter must not lock up what was stored before it: see `judged`.
    before = kind.problems(kind.normalize(request.old)) if request.old is not None else ()
    verdict = judged(kind.problems(document), before)
    misdeeds = kind.misdeeds(request.old, document)
    if verdict.problems or misdeeds:
        return Verdict(problems=(*verdict.problems, *misdeeds))
    return Verdict(object=document, warnings=(*verdict.warnings, *kind.warnings(document)), news=verdict.news)
