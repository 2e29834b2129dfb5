"""What the controller of Pods does if its store of claims is behind that of Pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from controllers.shared.pod_claims import claim_metadata
from controllers.shared.vmi import VMI
from controllers.virtualnode.addresses import AddressReader
from controllers.virtualnode.pod import Pod, PodClaim, PodPool, parse_pod
from controllers.virtualnode.pods import LOST_CLAIM_PAUSES, PodController
from controllers.warmpool.vm_agent import ConfirmedAddresses
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.events import EventRecorder
from poolhouse.runtime.resource import Key
from poolhouse.runtime.store import Store
from tests.controllers.virtualnode.pods import CLAIM_OF_WEB, Json, claim, pod
from tests.controllers.virtualnode.test_addresses import a_vmi

NAMED = {"annotations": {"poolhouse.dev/claim-name": CLAIM_OF_WEB}}
DELETED = {**NAMED, "deletionTimestamp": "2026-01-01T00:00:59Z"}
RUNNING, ENDED = {"phase": "Running"}, {"phase": "Succeeded"}
OF_ANOTHER = claim()
OF_ANOTHER["metadata"] |= claim_metadata("web", "u-2") | {"name": CLAIM_OF_WEB}


class Server:
    """Has a claim, and notes what is written."""

    def __init__(self, claim: Json | None) -> None:
        self.claim, self.writes = claim, list[str]()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 0, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def get(self, *_: Any) -> Json:
        if self.claim is None:
            raise NotFound("there is none", status=404)
        return self.claim

    async def patch(self, *_: Any, **__: Any) -> None:
        self.writes.append("status")

    async def delete(self, *_: Any, **__: Any) -> None:
        self.writes.append("delete")


class NoEvents:
    def emit(self, *_: Any, **__: Any) -> None: ...


async def no_address(vmi: VMI) -> ConfirmedAddresses:
    return ConfirmedAddresses(())


FIRST_PAUSE = LOST_CLAIM_PAUSES.delay(1, "ns/web")


def controller(server: Server, pods: Store[Pod], vmis: dict[Key, VMI]) -> PodController:
    claims, pools = Store[PodClaim | None]({"pod": lambda _: ()}), Store[PodPool]({"namespace": lambda _: ()})
    api, events = cast(Api, server), cast(EventRecorder, NoEvents())
    return PodController(api, events, pods, claims, pools, AddressReader(vmis.get, no_address))


@pytest.mark.parametrize(
    ("stored", "live", "writes"),
    [
        pytest.param(pod(metadata=NAMED, status=RUNNING), claim(), [], id="the claim exists: the Pod runs"),
        pytest.param(pod(metadata=NAMED, status=RUNNING), None, ["status"], id="the claim is lost: the Pod fails"),
        pytest.param(pod(metadata=NAMED, status=RUNNING), OF_ANOTHER, ["status"], id="the claim is another Pod's"),
        pytest.param(pod(metadata=DELETED, status=RUNNING), claim(), [], id="a deleted Pod goes after its VM"),
        pytest.param(pod(metadata=DELETED, status=ENDED), claim(), [], id="also if its application has ended"),
        pytest.param(pod(metadata=DELETED, status=RUNNING), None, ["delete"], id="a deleted Pod without a VM goes"),
        pytest.param(pod(metadata=NAMED, status=ENDED), None, [], id="a Pod that has ended stays"),
    ],
)
async def test_a_claim_that_the_store_does_not_show_is_read(stored: Json, live: Json | None, writes: list[str]) -> None:
    server, pods = Server(live), Store[Pod]()
    pods.put(("ns", "web"), parse_pod(stored))
    assert await controller(server, pods, {}).reconcile(("ns", "web")) == (
        FIRST_PAUSE if live is not None and not writes else None
    )
    assert server.writes == writes


@pytest.mark.parametrize(
    ("vm", "vmi", "writes"),
    [
        pytest.param("warm-1", True, [], id="its VM still runs"),
        pytest.param("warm-1", False, ["status"], id="its VM is gone"),
        pytest.param("warm-2", True, ["status"], id="another VM runs"),
    ],
)
async def test_a_pod_that_has_lost_its_claim_fails_after_its_vm(vm: str, vmi: bool, writes: list[str]) -> None:
    notes = {"annotations": NAMED["annotations"] | {"poolhouse.dev/vm": vm}}
    server, pods = Server(None), Store[Pod]()
    pods.put(("ns", "web"), parse_pod(pod(metadata=notes, status=RUNNING)))
    vmis = {("ns", "warm-1"): a_vmi()} if vmi else {}
    assert await controller(server, pods, vmis).reconcile(("ns", "web")) == (None if writes else FIRST_PAUSE)
    assert server.writes == writes


async def test_pods_whose_vm_runs_on_cost_less_and_less() -> None:
    notes = {"annotations": NAMED["annotations"] | {"poolhouse.dev/vm": "warm-1"}}
    pods, vmis = Store[Pod](), {("ns", "warm-1"): a_vmi()}
    pods.put(("ns", "web"), parse_pod(pod(metadata=notes, status=RUNNING)))
    of = controller(Server(None), pods, vmis)
    pauses = [await of.reconcile(("ns", "web")) for _ in range(9)]
    assert pauses[0] == FIRST_PAUSE
    assert min(filter(None, pauses[5:])) > 10
