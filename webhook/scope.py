"""Which requests are left alone: what does not change what somebody wants.

Status writes come from controllers, deletions must never be held up, and whoever only takes a finalizer off or puts a
label on must not be told about a spec that was good enough yesterday.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinds import by_gvk
from webhook.patch import same
from webhook.review import AdmissionRequest


def skip_reason(request: AdmissionRequest) -> str | None:
    """Why nothing is to be examined or changed; None when it is."""
    if request.operation not in ("CREATE", "UPDATE"):
        return f"{request.operation.lower()} changes no spec"
    if request.subresource:
        return f"the subresource {request.subresource} is not the spec"
    document = request.object or {}
    if metadata_of(document).get("deletionTimestamp"):
        return "it is being deleted"
    if (
        request.operation == "UPDATE"
        and request.old is not None
        and same(request.old.get("spec"), document.get("spec"))
        and not _noted(request, request.old)
    ):
        return "its spec stays as it is"
    return None


def _noted(request: AdmissionRequest, old: Mapping[str, Any]) -> bool:
    """Is something new written in annotations that are as good as the spec?"""
    kind = by_gvk(request.api_version, request.kind)
    before, after = annotations_of(old), annotations_of(request.object or {})
    return any(before.get(each) != after.get(each) for each in (kind.told_in_annotations if kind else ()))


def metadata_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def annotations_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata_of(document).get("annotations")
    return found if isinstance(found, dict) else {}
