"""A node of a whole stack is lost: what the pool, the commands and the log say about it, until it is back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from controllers.pool.pools import POOLS
from poolhouse.api.kinds import meta
from poolhouse.cli.main import poolhouse
from poolhouse.runtime.api import Api
from poolhouse.runtime.resource import NODES, VMIS, VMS
from poolhouse.stack.paths import StackPaths
from tests.waiting import eventually

POOL = "my-vm-pool"


async def test_a_lost_node_is_named_until_it_is_back(whole: StackPaths) -> None:
    async with await Api.connect(whole.kubeconfig, user_agent="tests") as api:
        await eventually(lambda: _reason(api, "Ready"))
        vmis, _ = await api.list(VMIS, "default", label_selector=f"{meta.POOL}={POOL}")
        (node, number), *_ = Counter(each["status"]["nodeName"] for each in vmis).most_common()
        vm = next(each["metadata"]["name"] for each in vmis if each["status"]["nodeName"] == node)
        for each in vmis:  # the VMIs of a lost node must not fail before the commands have looked
            patient = {"metadata": {"annotations": {f"{meta.SIM_PREFIX}node-lost-seconds": "3600"}}}
            await api.patch(VMS, "default", each["metadata"]["name"], patient)
        await _set_lost(api, node, "true")
        try:
            # VMs become unready one after the other.
            message = await eventually(lambda: _message(api, f"node {node} is not ready ({number} VMs)"))
            rows = json.loads(await command(whole.kubeconfig, "overview", "-o", "json"))
            assert [(row["state"], row["message"]) for row in rows if row["name"] == POOL] == [
                ("Degraded", f"NodeNotReady: {message}")
            ]
            assert f"now   node {node} is not ready" in await command(whole.kubeconfig, "why", vm)
        finally:
            await _set_lost(api, node, None)
        await eventually(lambda: _reason(api, "Ready"))
        log = await eventually(lambda: _log(api))
        assert [each["reason"] for each in log[-2:]] == ["NodeNotReady", "NodeReady"]
        assert log[-2]["message"].partition(":")[0] == f"node {node} is not ready"
        assert f"NodeReady: node {node} is ready again, after an outage since" in await command(
            whole.kubeconfig, "why", vm
        )


async def command(kubeconfig: Path, *words: str) -> str:
    """The output of a command, which may exit with another code than 0."""
    done = await asyncio.to_thread(CliRunner().invoke, poolhouse, [*words, "--kubeconfig", str(kubeconfig)])
    return done.stdout


async def _set_lost(api: Api, node: str, value: str | None) -> None:
    await api.patch(NODES, None, node, {"metadata": {"annotations": {meta.NODE_LOST: value}}})


async def _reason(api: Api, reason: str) -> dict[str, Any] | None:
    """The status, if the pool exists and its condition Ready has the reason."""
    pools, _ = await api.list(POOLS, "default")
    status: dict[str, Any] = next((each.get("status", {}) for each in pools if each["metadata"]["name"] == POOL), {})
    found = {each["type"]: each["reason"] for each in status.get("conditions") or ()}
    return status if found.get("Ready") == reason else None


async def _message(api: Api, words: str) -> str:
    """The message of the condition Ready, if its reason is a lost node and it has these words."""
    status = await _reason(api, "NodeNotReady") or {}
    messages = {each["type"]: str(each["message"]) for each in status.get("conditions") or ()}
    return found if words in (found := messages.get("Ready", "")) else ""


async def _log(api: Api) -> list[dict[str, Any]] | None:
    """The decisions about nodes, once they have the end of the outage."""
    decisions = (await api.get(POOLS, "default", POOL))["status"].get("decisions") or ()
    found = [each for each in decisions if each["reason"].startswith("Node")]
    return found if found and found[-1]["reason"] == "NodeReady" else None
