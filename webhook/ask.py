"""Asking the defaulter for one admission request: its deadline, its breaker, and what its failures mean."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from apimachinery.problem import Problem
from defaulter.contract import DefaulterUnavailable, DefaultingResponse, ForbiddenChange, InvalidDocument, MACPolicy
from runtime.circuit_breaker import CircuitBreaker
from webhook import defaulting
from webhook.review import SKIPPED, AdmissionRequest, AdmissionResponse, denied_or_tolerated

log = logging.getLogger(__name__)

Json = dict[str, Any]


class DefaulterClient(Protocol):
    """`defaulter.contract.Defaulter`: each call ends within its deadline, and its answer changed only what it may."""

    async def complete(
        self, document: Json, *, old: Json | None = None, namespace: str | None = None, seed: str | None = None
    ) -> DefaultingResponse: ...


class DefaultingHandler:
    """`budget_seconds` is for the whole of a request, and well inside the webhook's own timeout."""

    def __init__(
        self,
        defaulter: DefaulterClient,
        *,
        seed: str,
        budget_seconds: float,
        now: Callable[[], float],
        breaker: CircuitBreaker,
        macs: MACPolicy = "deterministic",
    ) -> None:
        self._defaulter = defaulter
        self._seed = seed
        self._budget_seconds = budget_seconds
        self._now = now
        self._macs = macs
        self.breaker = breaker

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """On a VirtualMachine or VirtualMachineInstance that is created or whose spec changes. Never raises."""
        if defaulting.waits_for_stop(request, self._macs) or defaulting.comes_decided(request, self._macs):
            return AdmissionResponse(reason=SKIPPED)
        self.breaker, may = self.breaker.asked(self._now())
        if not may:
            return defaulting.passed(request, defaulting.RESTING, self._macs)
        deadline = self._now() + self._budget_seconds
        try:
            async with asyncio.timeout(self._budget_seconds):
                answer = await self._complete(request, defaulting.known(request), request.old)
        except ForbiddenChange as answered:
            self.breaker = self.breaker.succeeded()
            log.error("the defaulter's answer was not taken: %s", answered.reason)
            return defaulting.passed(request, defaulting.OVERREACH, self._macs)
        except (DefaulterUnavailable, TimeoutError) as away:
            self.breaker = self.breaker.failed(self._now())
            log.warning("the defaulter is away: %s", away or f"no answer within {self._budget_seconds:g} s")
            return defaulting.passed(request, defaulting.AWAY, self._macs)
        except InvalidDocument as refusal:
            self.breaker = self.breaker.succeeded()
            before = await self._stored(request, deadline - self._now()) if request.old is not None else ()
            return denied_or_tolerated(_problems(refusal), before)
        self.breaker = self.breaker.succeeded()
        return defaulting.completed(answer.object, answer.warnings)

    async def _stored(self, request: AdmissionRequest, seconds: float) -> tuple[Problem, ...]:
        """Problems of the object as it is stored; none known when there is no answer."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete(request, request.old or {}, None)
        except InvalidDocument as refusal:
            return _problems(refusal)
        except (DefaulterUnavailable, TimeoutError):
            return ()
        return ()

    async def _complete(self, request: AdmissionRequest, document: Json, old: Json | None) -> DefaultingResponse:
        # An object made with generateName has no name yet. Its MAC addresses come from the request's uid, or all
        # objects of one prefix would get the same ones; a request that is sent twice still gets the same twice.
        seed = self._seed or None if request.name else f"{self._seed}/{request.uid}"
        return await self._defaulter.complete(document, old=old, namespace=request.namespace or None, seed=seed)


class NoDefaulter:
    """Where there is no defaulter by intention: VMs are stored as they come, and nothing is promised about them."""

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return AdmissionResponse(reason=SKIPPED)

    async def complete(
        self, document: Json, *, old: Json | None = None, namespace: str | None = None, seed: str | None = None
    ) -> DefaultingResponse:
        raise DefaulterUnavailable("there is none")


def _problems(refusal: InvalidDocument) -> tuple[Problem, ...]:
    return tuple(Problem(problem.path, problem.message) for problem in refusal.problems)
