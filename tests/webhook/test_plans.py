"""Plans in answers to dry runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from poolhouse.api import kinds
from tests.runtime.faulty_server import Request, Server
from tests.waiting import PATIENCE_SECONDS
from webhook.models import PlanStep
from webhook.plans import PlanAnswer, PlanClient

POOL = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachinePool", "metadata": {"name": "web"}}
STEPS = [{"action": "Create", "vm": "web-1", "reason": "0 of 1 VM exists"}]


@pytest.fixture
async def controllers() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@pytest.fixture
async def plans(controllers: Server) -> AsyncIterator[PlanClient]:
    async with aiohttp.ClientSession() as session:
        yield PlanClient(controllers.url, session, seconds=PATIENCE_SECONDS)


async def test_the_controllers_get_the_object_as_it_would_be_stored(controllers: Server, plans: PlanClient) -> None:
    async def script(request: Request) -> None:
        assert (request.method, request.path, request.document) == ("POST", "/apis/pools/plan", POOL)
        assert request.headers["authorization"] == "Bearer token"
        await request.answer(200, {"plan": STEPS, "refused": "another pool has the disks"})

    controllers.script = script
    assert await plans.plan(kinds.POOL, POOL, "Bearer token") == PlanAnswer(
        [PlanStep(**step) for step in STEPS], ("another pool has the disks",)
    )


async def test_a_token_is_not_sent_without_tls() -> None:
    async with aiohttp.ClientSession() as session:
        told = await PlanClient("http://controllers.example.com", session).plan(kinds.POOL, POOL, "Bearer token")
    assert told.steps is None
    assert "not https" in told.warnings[0]


async def test_a_caller_that_may_not_list_vms_gets_a_warning(controllers: Server, plans: PlanClient) -> None:
    async def script(request: Request) -> None:
        await request.answer(403, {"problems": []})

    controllers.script = script
    assert "may not list" in (await plans.plan(kinds.POOL, POOL, "Bearer token")).warnings[0]


@pytest.mark.parametrize(
    ("code", "body"), [(503, {"plan": STEPS}), (200, {"plan": "no"}), (200, []), (200, b"<html>"), (404, {})]
)
async def test_the_webhook_ignores_an_invalid_plan_of_the_controllers(
    controllers: Server, plans: PlanClient, code: int, body: Any
) -> None:
    async def script(request: Request) -> None:
        await request.answer(code, body)

    controllers.script = script
    assert (await plans.plan(kinds.POOL, POOL, "Bearer token")).steps is None


async def test_controllers_that_hang_time_out(controllers: Server) -> None:
    async with aiohttp.ClientSession() as session:
        assert (
            await PlanClient(controllers.url, session, seconds=0.2).plan(kinds.POOL, POOL, "Bearer token")
        ).steps is None


async def test_controllers_that_reset_the_connection_give_no_plan(controllers: Server, plans: PlanClient) -> None:
    async def script(request: Request) -> None:
        request.reset()

    controllers.script = script
    assert (await plans.plan(kinds.POOL, POOL, "Bearer token")).steps is None
