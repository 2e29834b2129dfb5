"""Gets the plan for an object from the controllers. Only the controllers have the VMs that a plan depends on.

The request contains the caller's token, because only callers that may list VMs get a plan. The connection uses TLS or
stays on this machine.
"""

import asyncio
import logging
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.kind import Kind
from webhook.models import PlanResponse, PlanStep

log = logging.getLogger(__name__)

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class PlanAnswer:
    steps: list[PlanStep] | None = None
    """Steps of the plan; None if the plan is unknown, for a reason in the warnings."""
    warnings: tuple[str, ...] = ()


class PlanClient:
    def __init__(self, url: str, session: aiohttp.ClientSession, *, seconds: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._session, self._seconds = session, seconds
        parts = urlsplit(url)
        self._private = parts.scheme == "https" or parts.hostname in LOOPBACK

    async def plan(self, kind: Kind, document: Json, authorization: str) -> PlanAnswer:
        """The plan for an object. `authorization` is the header with the caller's token."""
        if not self._private:
            return _unknown("POOLHOUSE_CONTROLLERS_URL is not https, so the token is not sent")
        url = self._url + kind.plan_path
        headers = {"Authorization": authorization}
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._session.post(url, json=document, headers=headers, allow_redirects=False) as answer,
            ):
                if answer.status == 403:
                    return _unknown("you may not list the VMs")
                if answer.status != 200:
                    return _unknown(f"the controllers answered {answer.status}")
                found = PlanResponse.model_validate_json(await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("no plan from %s: %s", url, str(error) or "no answer in time")
            return _unknown("the controllers gave no answer")
        except ValueError as error:
            log.warning("no plan from %s: %s", url, error)
            return _unknown("the controllers' answer is not a plan")
        more = "" if found.complete else f"the plan has more than these {len(found.plan)} actions"
        return PlanAnswer(found.plan, tuple(why for why in (found.refused, found.blocked, more) if why))


def _unknown(why: str) -> PlanAnswer:
    return PlanAnswer(warnings=(f"the plan is unknown: {why}",))
