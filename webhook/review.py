"""AdmissionReview in, a verdict, AdmissionReview out.

A verdict says what was found and how the object should be stored; that it travels as a JSON patch in base64, and a
denial as a Status with causes, is known here only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from apimachinery.problem import Problem
from webhook.body import Unreadable
from webhook.patch import diff

Json = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")

WARNING_LIMIT = 256
"""characters; API servers cut longer ones, and drop further ones once there are 4096 in all"""
CAUSES_LIMIT = 1000

SKIPPED = "Skipped"
TOLERATED = "Tolerated"


@dataclass(frozen=True)
class AdmissionRequest:
    uid: str
    operation: str
    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    object: Json | None = None
    old: Json | None = None
    user: Json = field(default_factory=dict)
    """userInfo: username, uid, groups, extra"""
    dry_run: bool = False


@dataclass(frozen=True)
class AdmissionResponse:
    """Without problems the object is allowed; `object` is how it should be stored, None as it came."""

    problems: tuple[Problem, ...] = ()
    object: Json | None = None
    warnings: tuple[str, ...] = ()
    forbidden: bool = False
    """denied for who asks (403), not for what is asked (422)"""
    reason: str = ""
    """for the metrics: a word on how it came to this, such as `skipped`; empty for the usual way"""


def denied_or_tolerated(problems: Iterable[Problem], before: Iterable[Problem] = ()) -> AdmissionResponse:
    """Denied for its problems; but those that the stored object has as well (`before`) are warnings, or an object that
    was good enough once could never be edited again."""
    known = set(before)
    found = tuple(problems)
    new = tuple(problem for problem in found if problem not in known)
    return (
        AdmissionResponse(problems=new)
        if new
        else AdmissionResponse(warnings=tuple(map(str, found)), reason=TOLERATED if found else "")
    )


def from_admission_review(document: Json) -> AdmissionRequest:
    """The request in an AdmissionReview. Raises `Unreadable` for what no API server sends."""
    if document.get("kind") != "AdmissionReview" or document.get("apiVersion") != API_VERSION:
        raise Unreadable(400, f"the body must be an AdmissionReview of {API_VERSION}")
    request = document.get("request")
    if not isinstance(request, dict):
        raise Unreadable(400, "request: must be an object")
    operation = _text(request, "operation")
    if operation not in OPERATIONS:
        raise Unreadable(400, f"request.operation: must be one of {', '.join(OPERATIONS)}")
    # What was sent for this rule, after matchPolicy Equivalent converted it, is `kind`, not `requestKind`.
    kind = _mapping(request, "kind")
    group, version = _text(kind, "group", at="kind."), _text(kind, "version", at="kind.")
    found = AdmissionRequest(
        uid=_text(request, "uid"),
        operation=operation,
        api_version=f"{group}/{version}" if group else version,
        kind=_text(kind, "kind", at="kind."),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        subresource=_text(request, "subResource"),
        object=_document(request, "object"),
        old=_document(request, "oldObject"),
        user=_mapping(request, "userInfo"),
        dry_run=request.get("dryRun") is True,
    )
    if not found.uid:
        raise Unreadable(400, "request.uid: must be given, it names the answer")
    if not found.kind:
        raise Unreadable(400, "request.kind.kind: must be given")
    if operation in ("CREATE", "UPDATE") and found.object is None:
        raise Unreadable(400, f"request.object: must be an object for {operation}")
    return found


def to_admission_review(request: AdmissionRequest, verdict: AdmissionResponse) -> Json:
    """The AdmissionReview that says so. The same verdict on the same request is the same answer, to the byte."""
    response: Json = {"uid": request.uid, "allowed": not verdict.problems}
    if verdict.problems:
        response["status"] = status(request, verdict)
    elif verdict.object is not None:
        operations = diff(request.object, verdict.object)
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(operations, separators=(",", ":")).encode()).decode()
    if verdict.warnings:
        response["warnings"] = [warning(text) for text in verdict.warnings]
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def status(request: AdmissionRequest, verdict: AdmissionResponse) -> Json:
    """A denial as the Status that kubectl prints, one line a problem."""
    told = verdict.problems[:CAUSES_LIMIT]
    more = len(verdict.problems) - len(told)
    message = sentence(told) + (f"; and {more} more" if more else "")
    code, reason = (403, "Forbidden") if verdict.forbidden else (422, "Invalid")
    causes = [{"reason": "FieldValueInvalid", "field": p.path, "message": p.message} for p in told]
    group = request.api_version.rpartition("/")[0]
    details = {"group": group, "kind": request.kind, "name": request.name, "causes": causes}
    return {"status": "Failure", "code": code, "reason": reason, "message": message, "details": details}


def sentence(problems: Iterable[Problem]) -> str:
    return "; ".join(str(problem) for problem in problems)


def warning(text: str) -> str:
    """As it may travel in a Warning header: one line, short, no control characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= WARNING_LIMIT else line[: WARNING_LIMIT - 3] + "..."


def _text(holder: Json, key: str, *, at: str = "") -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unreadable(400, f"request.{at}{key}: must be a string")
    return value


def _mapping(holder: Json, key: str) -> Json:
    return _document(holder, key) or {}


def _document(holder: Json, key: str) -> Json | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, dict):
        raise Unreadable(400, f"request.{key}: must be an object")
    return value
