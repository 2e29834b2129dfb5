"""Errors of the API server as problems of the document."""

from __future__ import annotations

import pytest

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from webhook.api_errors import problems_of

CAUSES = {"causes": [{"field": "spec.a", "message": "bad"}, {"field": "<nil>", "message": "worse"}]}


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        pytest.param(
            Invalid("no", status=422, details=CAUSES), (Problem("spec.a", "bad"), Problem("", "worse")), id="causes"
        ),
        pytest.param(
            Forbidden('admission webhook "x" denied the request: no', status=403), (Problem("", "no"),), id="a denial"
        ),
        pytest.param(
            Invalid('strict decoding error: unknown field "spec.x", unknown field "spec.y"', status=400),
            (Problem("spec.x", "unknown field"), Problem("spec.y", "unknown field")),
            id="unknown fields",
        ),
        pytest.param(
            NotFound('namespaces "x" not found', status=404, details={"kind": "namespaces", "name": "x"}),
            (Problem("metadata.namespace", 'namespaces "x" not found'),),
            id="no such namespace",
        ),
        pytest.param(
            NotFound("no", status=404), (Problem("kind", "this cluster does not serve this kind"),), id="no such kind"
        ),
        pytest.param(
            AlreadyExists("no", status=409),
            (Problem("metadata.name", "an object of this name exists already; choose another name"),),
            id="a name that is taken",
        ),
        pytest.param(Conflict("old", status=409), (Problem("metadata.resourceVersion", "old"),), id="an old version"),
        pytest.param(Unauthorized("who?", status=401), (), id="an unknown token says nothing of the document"),
        pytest.param(Throttled("later", status=429), (), id="a busy server says nothing of the document"),
        pytest.param(Unavailable("oh", status=500), (), id="a broken server says nothing of the document"),
    ],
)
def test_refusals_become_problems_of_the_document(error: ApiError, problems: tuple[Problem, ...]) -> None:
    assert problems_of(error) == problems
