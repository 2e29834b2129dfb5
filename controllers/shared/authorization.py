"""Who may be told what the stores hold: whoever may list it himself."""

from __future__ import annotations

from typing import Any

from runtime import access_review
from runtime.api import Api
from runtime.errors import ApiError, Forbidden
from runtime.resource import Resource

Json = dict[str, Any]


async def authorize_list(api: Api, token: str, resource: Resource, namespace: str) -> tuple[int, Json] | None:
    """Why the token's owner is told nothing about these objects: the status and the body of an answer."""
    question = access_review.self_subject_access_review("list", resource, namespace)
    try:
        review = await api.request("POST", access_review.SELF_SUBJECT_ACCESS_REVIEWS, body=question, token=token)
    except Forbidden as error:
        return error.status or 403, problem_body("the API server does not know this token")
    except ApiError as error:
        return 503, problem_body(f"whether you may see {resource.plural} could not be asked: {error.message}")
    return None if access_review.is_allowed(review) else (403, problem_body(f"you may not list {resource.plural}"))


def problem_body(message: str, path: str = "") -> Json:
    return {"problems": [{"path": path, "message": message}]}
