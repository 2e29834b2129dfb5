"""Converts AdmissionReviews of the API server to `AdmissionRequest`, and `AdmissionResponse` to AdmissionReviews.

In a review, a changed object is a JSON patch in base64, and a denial is a Status with causes.
"""

import base64
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

import orjson

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.reasons import Reason
from poolhouse.api.apimachinery.unstructured import Json, typed
from poolhouse.api.kinds.resource_types import ResourceType
from poolhouse.service.request_body import RequestRefused
from webhook.patch import diff
from webhook.reasons import AdmissionReason, DriftReason, FailOpenReason

API_VERSION = "admission.k8s.io/v1"
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")

WARNING_LIMIT = 256
"""Maximum characters. API servers truncate longer warnings, and drop warnings after 4096 characters in total."""
WARNINGS_LIMIT = 4096 - 2 * WARNING_LIMIT
"""Maximum characters of all warnings of a response. The rest is for other webhooks, and for the other call of ours."""
CAUSES_LIMIT = 1000


@dataclass(frozen=True)
class AdmissionRequest:
    uid: str
    operation: str
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    resource: str = ""
    """The resource as `PLURAL.GROUP`, of which the object may be a subresource."""
    object: Json | None = None
    old: Json | None = None
    user: Json = field(default_factory=dict)
    """`userInfo`: username, uid, groups, extra."""
    dry_run: bool = False

    def is_of(self, kind: ResourceType) -> bool:
        return (self.api_version, self.kind) == (kind.api_version, kind.kind)

    @property
    def username(self) -> str:
        """The user's name for messages."""
        return self.user.get("username") or "an unknown user"


@dataclass(frozen=True)
class AdmissionResponse:
    problems: tuple[Problem, ...] = ()
    """Problems for which the object is denied. An object without problems is allowed."""
    object: Json | None = None
    """The object to store; None to store it unchanged."""
    warnings: tuple[str, ...] = ()
    forbidden: bool = False
    """Whether a denial is for a missing right (403) and not for an invalid object (422)."""
    reason: Reason | None = None
    """Reason in metrics; None if all checks ran."""
    cause: str = ""
    """What the reason does not say about this object."""
    drift: DriftReason | None = None
    """How another webhook changed the hardware before, which is counted beside the reason of this response."""


def denied_or_tolerated(problems: Iterable[Problem], stored: Iterable[Problem] = ()) -> AdmissionResponse:
    """A denial for new problems. Problems that the stored object has too become warnings. Otherwise a stricter rule
    would prevent every further change of the object."""
    known = set(stored)
    found = tuple(problems)
    new = tuple(problem for problem in found if problem not in known)
    if new:
        return AdmissionResponse(problems=new)
    return AdmissionResponse(warnings=tuple(map(str, found)), reason=AdmissionReason.TOLERATED if found else None)


def annotations_of(document: Json | None) -> Json:
    return typed(dict, document, "metadata", "annotations") or {}


def from_admission_review(document: Json) -> AdmissionRequest:
    """The request in an AdmissionReview. Raises `RequestRefused` for a document that no API server sends."""
    if document.get("kind") != "AdmissionReview" or document.get("apiVersion") != API_VERSION:
        raise RequestRefused(400, f"the body must be an AdmissionReview of {API_VERSION}")
    request = document.get("request")
    if not isinstance(request, dict):
        raise RequestRefused(400, "request: must be an object")
    operation = _text(request, "operation")
    if operation not in OPERATIONS:
        raise RequestRefused(400, f"request.operation: must be one of {', '.join(OPERATIONS)}")
    # With matchPolicy Equivalent, `kind` is the object's version after conversion; `requestKind` is the original.
    kind = _document(request, "kind") or {}
    group, version = _text(kind, "group", parent="kind."), _text(kind, "version", parent="kind.")
    resource = _document(request, "resource") or {}
    names = (_text(resource, name, parent="resource.") for name in ("resource", "group"))
    found = AdmissionRequest(
        uid=_text(request, "uid"),
        operation=operation,
        api_version=f"{group}/{version}" if group else version,
        kind=_text(kind, "kind", parent="kind."),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        subresource=_text(request, "subResource"),
        resource=".".join(filter(None, names)),
        object=_document(request, "object"),
        old=_document(request, "oldObject"),
        user=_document(request, "userInfo") or {},
        dry_run=request.get("dryRun") is True,
    )
    if not found.uid:
        raise RequestRefused(400, "request.uid: is required; the response repeats it")
    if not found.kind:
        raise RequestRefused(400, "request.kind.kind: is required")
    if operation in ("CREATE", "UPDATE") and found.object is None:
        raise RequestRefused(400, f"request.object: is required for {operation}")
    return found


def to_admission_review(request: AdmissionRequest, response: AdmissionResponse) -> Json:
    """The AdmissionReview to send. Equal arguments give equal bytes."""
    body: Json = {"uid": request.uid, "allowed": not response.problems}
    if response.problems:
        body["status"] = status(request, response)
    elif response.object is not None:
        operations = diff(request.object, response.object)
        if operations:
            body["patchType"] = "JSONPatch"
            body["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if response.warnings:
        body["warnings"] = warnings(response.warnings)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": body}


def status(request: AdmissionRequest, response: AdmissionResponse) -> Json:
    """The denial as the Status that kubectl prints."""
    shown = response.problems[:CAUSES_LIMIT]
    more = len(response.problems) - len(shown)
    message = "; ".join(map(str, shown)) + (f"; and {more} more" if more else "")
    code, reason = (403, "Forbidden") if response.forbidden else (422, "Invalid")
    if isinstance(response.reason, FailOpenReason):  # the object may be valid, and be allowed later
        code, reason = 503, "ServiceUnavailable"
    causes = [{"reason": "FieldValueInvalid", "field": p.path, "message": p.message} for p in shown]
    group = request.api_version.rpartition("/")[0]
    details = {"group": group, "kind": request.kind, "name": request.name, "causes": causes}
    return {"status": "Failure", "code": code, "reason": reason, "message": message, "details": details}


def warnings(texts: Iterable[str]) -> list[str]:
    """The different warnings for the headers of a response. If not all fit, the last one says how many are left out."""
    lines = list(dict.fromkeys(map(warning, texts)))
    ends = list(accumulate(map(len, lines)))
    if not ends or ends[-1] <= WARNINGS_LIMIT:
        return lines
    kept = lines[: bisect_right(ends, WARNINGS_LIMIT - WARNING_LIMIT)]
    return [*kept, f"and {len(lines) - len(kept)} more warnings, for which the response has no room"]


def warning(text: str) -> str:
    """The text for a Warning header: one line, no control characters, at most `WARNING_LIMIT` characters. A long one
    is cut in its middle: names are there, the path is at the beginning, and the number or the advice at the end."""
    line = "".join(c if c.isprintable() else " " for c in text)
    kept = (WARNING_LIMIT - 3) // 2
    return line if len(line) <= WARNING_LIMIT else f"{line[:kept]}...{line[-kept:]}"


def _text(parent_object: Json, key: str, *, parent: str = "") -> str:
    value = parent_object.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestRefused(400, f"request.{parent}{key}: must be a string")
    return value


def _document(request: Json, key: str) -> Json | None:
    value = request.get(key)
    if value is not None and not isinstance(value, dict):
        raise RequestRefused(400, f"request.{key}: must be an object")
    return value
