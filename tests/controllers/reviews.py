"""The answer of the API server to an access review."""

from collections.abc import Callable
from datetime import datetime
from typing import Self

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.errors import ApiError


class Reviews:
    """Answers whether the caller may list a resource in the namespace `default`."""

    def __init__(self, resource: str, allowed: bool | ApiError, now: datetime) -> None:
        self._resource, self._allowed, self._now = resource, allowed, now

    def now(self) -> datetime:
        return self._now

    def with_token(self, token: Callable[[], str]) -> Self:
        assert token() == "token"
        return self

    async def request(self, method: str, path: str, *, body: Json) -> Json:
        assert (method, path.endswith("/selfsubjectaccessreviews")) == ("POST", True)
        asked = body["spec"]["resourceAttributes"]
        assert (asked["verb"], asked["resource"], asked["namespace"]) == ("list", self._resource, "default")
        if isinstance(self._allowed, ApiError):
            raise self._allowed
        return {"status": {"allowed": self._allowed}}
