"""What the writer does with each answer of the API server."""

from __future__ import annotations

import base64
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry

from controllers.claim import steps
from controllers.claim.allocator import Allocator, Stores
from controllers.claim.application_watch import ApplicationWatches
from controllers.claim.apply import WRITES, ClaimWriter
from controllers.claim.metrics import ClaimMetrics
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import SOURCE, ClaimSnapshot
from controllers.claim.steps import ActivateVM, CreateVM, DeleteUnrecordedVM, HandOverVM, ReserveVM, Step
from controllers.warmpool import warm_pool
from controllers.warmpool.backends import Change, CreateRequest, Health, OutcomeUnknown, WriteConflict
from controllers.warmpool.cache import WARM_VMS, WarmVMCache
from controllers.warmpool.warm_vm import NO_OWNER, Owner, StandbyMode, WarmVM
from poolhouse.runtime.errors import ApiError, Forbidden, Invalid, NotFound, Throttled, WebhookFailed
from poolhouse.runtime.store import Store
from tests.controllers.claim.builders import CLAIM_UID, a_claim, bound_status, claimed_vm, snapshot
from tests.controllers.warmpool.builders import NOW, TEMPLATE, a_pool, a_vm

POOL = a_pool()
REFUSED = Forbidden("the policy does not allow it")


@dataclass
class FakeBackend:
    """Refuses the writes of some VMs."""

    refuses: dict[str, ApiError] = field(default_factory=dict)
    """by UID"""
    owners: dict[str, Owner | None] = field(default_factory=dict)
    """as they were written, by UID"""
    creations: list[Exception] = field(default_factory=list)
    """answers to creations"""
    placements: list[str] = field(default_factory=list)
    """of the creations"""
    templates: list[Any] = field(default_factory=list)
    """of the creations"""
    live: dict[str, WarmVM | None] = field(default_factory=dict)
    """VMs that have changed since they were read, by UID"""
    terminated: list[str] = field(default_factory=list)
    """UIDs"""

    async def create(self, request: CreateRequest) -> WarmVM:
        self.placements.append(str(request.placement["name"]))
        self.templates.append(request.template)
        raise self.creations.pop(0)

    async def terminate(self, vm: WarmVM, reason: str) -> bool:
        self.terminated.append(vm.uid)
        return True

    async def find(self, namespace: str, claim_uid: str) -> list[WarmVM]:
        return []

    async def read(self, vm: WarmVM) -> WarmVM | None:
        return self.live.get(vm.uid, vm)

    async def activate(self, vm: WarmVM) -> bool:
        if vm.uid in self.refuses:
            raise self.refuses[vm.uid]
        return vm.standby == "Paused"

    async def change(self, vm: WarmVM, change: Change) -> WarmVM:
        if vm.uid in self.refuses:
            raise self.refuses[vm.uid]
        if vm.uid in self.live and vm is not self.live[vm.uid]:
            raise WriteConflict("it has changed")
        self.owners[vm.uid] = change.owner
        return vm


class SilentRecorder:
    def emit(self, *_: Any, **__: Any) -> None: ...


@dataclass
class Setup:
    """One claim and a pool with VMs."""

    vms: list[WarmVM]
    backend: FakeBackend
    seconds: float = 0.0
    api: Any = None

    def __post_init__(self) -> None:
        store = WARM_VMS.store()
        for vm in self.vms:
            store.put(vm.key, vm)
        claims = SOURCE.store()
        self.allocator = Allocator(Stores(claims, warm_pool.SOURCE.store(), WarmVMCache(store, Store(), Store())))
        self.allocator.ready.reset(self.vms)
        self.record = self.allocator.record(a_claim())
        self.apply = ClaimWriter(
            self.api,
            SilentRecorder(),
            lambda pool: self.backend,
            self.allocator,
            ClaimMetrics(CollectorRegistry()),
            ApplicationWatches(lambda key, after: None, lambda: 0.0),
            lambda: self.seconds,
            self.now,
        )

    def now(self) -> datetime:
        return NOW

    async def take(self, found: ClaimSnapshot, step: Step) -> None:
        await self.apply(found, step, self.record)

    @property
    def ready(self) -> set[str]:
        return {name for _, name in self.allocator.ready.candidates(POOL.uid, lambda variant: True)}


def test_each_step_but_a_requeue_has_a_write() -> None:
    kinds = {*get_args(Step), *steps._VMStep.__subclasses__()}
    assert set(WRITES) == kinds - {steps._VMStep, steps.Requeue}


async def test_a_refused_reservation_is_reported_and_another_vm_is_tried() -> None:
    first, second = a_vm("a"), a_vm("b")
    setup = Setup([first, second], FakeBackend({"a": REFUSED, "b": REFUSED}))
    await setup.take(snapshot(), ReserveVM(first))
    assert setup.record.failure.reason == "FailedReserve"
    assert "web-a" in setup.record.failure.message
    assert "the policy does not allow it" in setup.record.failure.message
    assert setup.record.retry_at > 0
    assert setup.ready == {"web-b"}, "the next attempt reserves another VM"
    await setup.take(snapshot(), ReserveVM(second))
    assert setup.ready == {"web-a"}, "the first VM is offered again"
    setup.allocator.forget(a_claim().uid)
    assert setup.ready == {"web-a", "web-b"}
    assert setup.allocator.quotas.exceeded(a_claim(uid="other"), a_pool(claimPolicy={"maxPerNamespace": 1})) is None


@pytest.mark.parametrize(
    ("live", "given"),
    [
        pytest.param(a_vm("a", resource_version="2"), True, id="its status was updated"),
        pytest.param(a_vm("a", resource_version="2", orphaned="Disowned"), False, id="it was orphaned"),
        pytest.param(a_vm("a", resource_version="2", owner=NO_OWNER), False, id="its owner reference was removed"),
        pytest.param(a_vm("a", resource_version="2", claim_uid="other"), False, id="another claim was first"),
        pytest.param(a_vm("a", resource_version="2", deleting=True), False, id="it is being deleted"),
        pytest.param(None, False, id="it is gone"),
    ],
)
@pytest.mark.sentence("5.31")
async def test_a_changed_vm_is_reserved_if_it_is_still_unclaimed(live: WarmVM | None, given: bool) -> None:
    vm = a_vm("a")
    setup = Setup([vm], FakeBackend(live={"a": live}))
    await setup.take(snapshot(), ReserveVM(vm))
    assert ("a" in setup.backend.owners) == ("a" in setup.record.vms) == given
    assert setup.ready == set(), "it stays reserved until its event"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"refuses": {"a": REFUSED}}, id="the VM is refused"),
        pytest.param({"refuses": {"a": Throttled("later")}}, id="the API server is busy"),
        pytest.param({"live": {"a": a_vm("a", claim_uid="other")}}, id="another claim was first"),
    ],
)
async def test_a_claim_whose_own_vm_boots_keeps_its_place_in_the_quota(answer: dict[str, Any]) -> None:
    """Else another claim of its user could get one VM too many."""
    setup = Setup([a_vm("a")], FakeBackend(**answer))
    setup.allocator.quotas.charge(CLAIM_UID, POOL.key, "")
    with suppress(Throttled):
        await setup.take(snapshot(a_claim(status=bound_status("m", "Cold")), claimed_vm()), ReserveVM(a_vm("a")))
    assert setup.allocator.quotas.exceeded(a_claim(uid="other"), a_pool(claimPolicy={"maxPerNamespace": 1})) is not None


DOWN = WebhookFailed('failed calling webhook "virtualmachines-mutator.kubevirt.io": connection refused', status=500)
NO_ANSWER = OutcomeUnknown("no answer before the deadline")


@pytest.mark.parametrize("error", [DOWN, NO_ANSWER], ids=lambda error: type(error).__name__)
async def test_a_reservation_that_the_server_fails_to_write_has_a_pause_and_a_reason(error: ApiError) -> None:
    vm = a_vm("a")
    setup = Setup([vm], FakeBackend({"a": error}))
    await setup.take(snapshot(), ReserveVM(vm))
    assert setup.record.failure.reason == "FailedReserve"
    assert error.message in setup.record.failure.message
    assert setup.record.retry_at > 0


@pytest.mark.parametrize("error", [DOWN, NO_ANSWER], ids=lambda error: type(error).__name__)
async def test_a_creation_that_the_server_fails_to_write_has_a_pause_and_a_reason(error: ApiError) -> None:
    setup = Setup([], FakeBackend(creations=[error]))
    await setup.take(snapshot(), CreateVM(PLACES, "claim-1", "PoolEmpty", "none is ready"))
    assert (setup.record.failure.reason, setup.record.failure.final) == ("FailedCreate", False)
    assert error.message in setup.record.failure.message
    assert setup.record.retry_at > 0


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        pytest.param(HandOverVM, DOWN, "FailedUpdate", id="a hand-over while a webhook is down"),
        pytest.param(HandOverVM, NO_ANSWER, "FailedUpdate", id="a hand-over without an answer"),
        pytest.param(ActivateVM, DOWN, "ActivationFailed", id="an activation while a webhook is down"),
    ],
)
async def test_an_error_of_the_server_is_no_fault_of_the_vm(step: Any, error: ApiError, reason: str) -> None:
    """Else the claim would delete one VM after the other during an outage."""
    vm = claimed_vm()
    setup = Setup([vm], FakeBackend({"m": error}))
    await setup.take(snapshot(a_claim(status=bound_status("m")), vm), step(vm))
    assert setup.record.health == Health("Unable", reason, error.message)


async def test_a_throttled_reservation_is_cancelled() -> None:
    vm = a_vm("a")
    setup = Setup([vm], FakeBackend({"a": Throttled("later")}))
    with pytest.raises(Throttled):
        await setup.take(snapshot(), ReserveVM(vm))
    assert setup.ready == {"web-a"}
    assert not setup.record.reserved


async def test_a_refused_hand_over_counts_as_a_failed_check() -> None:
    vm = claimed_vm()
    setup = Setup([vm], FakeBackend({"m": Invalid("labels: no")}))
    await setup.take(snapshot(a_claim(status=bound_status("m")), vm), HandOverVM(vm))
    assert (setup.record.health.verdict, setup.record.health.message) == ("Failed", "labels: no")


@pytest.mark.parametrize(("standby", "resumed"), [("Paused", ("m", 7.0)), ("Stopped", None)])
async def test_the_time_of_an_unpause_is_remembered(standby: StandbyMode, resumed: tuple[str, float] | None) -> None:
    vm = claimed_vm(standby=standby)
    setup = Setup([vm], FakeBackend(), seconds=7.0)
    await setup.take(snapshot(a_claim(status=bound_status("m")), vm), ActivateVM(vm))
    assert setup.record.resumed == resumed


async def test_a_refused_activation_counts_as_a_failed_check() -> None:
    vm = claimed_vm()
    setup = Setup([vm], FakeBackend({"m": Forbidden("VMI has a liveness probe")}))
    await setup.take(snapshot(a_claim(status=bound_status("m")), vm), ActivateVM(vm))
    assert setup.record.health == Health("Failed", "ActivationFailed", "VMI has a liveness probe")
    setup.backend.refuses["m"] = Throttled("later")
    with pytest.raises(Throttled):
        await setup.take(snapshot(a_claim(status=bound_status("m")), vm), ActivateVM(vm))


async def test_a_refused_hand_over_of_a_ready_claim_is_retried() -> None:
    vm = claimed_vm()
    setup = Setup([vm], FakeBackend({"m": Invalid("labels: no")}))
    with pytest.raises(Invalid):
        await setup.take(
            snapshot(a_claim(status=bound_status("m", phase="Ready", readyAt="2026-11-21T12:00:00Z")), vm),
            HandOverVM(vm),
        )


async def test_hand_over_restores_the_owner_reference() -> None:
    lost, kept = claimed_vm("lost", owner=a_pool().owner), claimed_vm("kept")
    setup = Setup([lost, kept], FakeBackend())
    for vm in (lost, kept):
        await setup.take(snapshot(a_claim(status=bound_status(vm.uid)), vm), HandOverVM(vm))
    assert setup.backend.owners == {"lost": a_claim().owner, "kept": None}


PLACES = a_pool(placements=[{"name": f"p{number}"} for number in range(50)])


@pytest.mark.parametrize(
    ("answers", "places"),
    [
        pytest.param([REFUSED] * 4, 4, id="each refusal draws another placement"),
        pytest.param([OutcomeUnknown("lost")] * 4, 1, id="a creation without answer is repeated unchanged"),
        pytest.param([OutcomeUnknown("lost"), REFUSED, REFUSED], 1, id="a refused repetition is repeated unchanged"),
        pytest.param([REFUSED, OutcomeUnknown("lost"), REFUSED], 2, id="a repetition after refusals stays unchanged"),
    ],
)
async def test_placements_of_repeated_creations(answers: list[Exception], places: int) -> None:
    setup = Setup([], FakeBackend(creations=[*answers]))
    for _ in answers:
        await setup.take(snapshot(pool=PLACES), CreateVM(PLACES, "mine-1", "PoolEmpty", "none is ready"))
    assert len(set(setup.backend.placements)) == places


async def test_another_vm_name_draws_another_placement() -> None:
    setup = Setup([], FakeBackend(creations=[OutcomeUnknown("lost"), REFUSED, REFUSED]))
    for name in ("mine-1", "mine-2", "mine-2"):
        await setup.take(snapshot(pool=PLACES), CreateVM(PLACES, name, "PoolEmpty", "none is ready"))
    assert len(set(setup.backend.placements)) == 3


async def test_a_placement_override_is_not_drawn() -> None:
    setup = Setup([], FakeBackend(creations=[REFUSED, REFUSED]))
    for _ in range(2):
        claim = a_claim(overrides={"placement": "p7"})
        await setup.take(snapshot(claim, pool=PLACES), CreateVM(PLACES, "mine-1", "OverrideMismatch", "none is there"))
    assert setup.backend.placements == ["p7", "p7"]


class Secrets:
    """An API server with one Secret, or with an error."""

    def __init__(self, content: str | ApiError) -> None:
        self.content = content

    async def get(self, resource: Any, namespace: str, name: str) -> Any:
        assert (resource.plural, namespace, name) == ("secrets", "ns", "keys")
        if isinstance(self.content, ApiError):
            raise self.content
        return {"data": {"key": base64.b64encode(self.content.encode()).decode()}}


CLOUD_INIT = {"domain": {}, "volumes": [{"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config"}}]}


@pytest.mark.parametrize(
    ("content", "given"),
    [
        pytest.param("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me", True, id="a public key"),
        pytest.param("hunter2", False, id="a password"),
        pytest.param("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", False, id="a private key"),
        pytest.param(Forbidden("you may not get secrets"), False, id="the controllers may not read it"),
        pytest.param(NotFound("there is none"), False, id="there is no such Secret"),
    ],
)
async def test_only_public_keys_reach_a_vm_that_is_created(content: str | ApiError, given: bool) -> None:
    pool = a_pool(template={"spec": {"template": {"spec": CLOUD_INIT}}})
    claim = a_claim(personalization={"sshPublicKeySecret": "keys", "hostname": "mine"})
    setup = Setup([], FakeBackend(creations=[OutcomeUnknown("no answer")]), api=Secrets(content))
    await setup.take(snapshot(claim, pool=pool), CreateVM(pool, "mine-1", ClaimReason.POOL_EMPTY, "none is ready"))
    (template,) = setup.backend.templates
    made = template["spec"]["template"]["spec"]
    assert made["hostname"] == "mine"
    assert ("accessCredentials" in made) is given


@pytest.mark.parametrize(
    ("stored", "deleted"),
    [
        pytest.param({"uid": POOL.uid, "members": []}, True, id="the status lacks it"),
        pytest.param({"uid": POOL.uid, "members": ["forged"]}, False, id="the store was behind"),
        pytest.param({"uid": "another", "members": ["forged"]}, True, id="another pool has its name"),
        pytest.param(None, True, id="the pool is gone"),
    ],
)
async def test_an_unrecorded_vm_is_deleted_only_if_the_api_server_says_so(stored: Any, deleted: bool) -> None:
    class Pools:
        async def get(self, resource: Any, namespace: str, name: str) -> Any:
            if stored is None:
                raise NotFound("gone")
            metadata = {"namespace": namespace, "name": name, "uid": stored["uid"]}
            return {"metadata": metadata, "spec": {"template": TEMPLATE}, "status": {"members": stored["members"]}}

    vm = claimed_vm("forged")
    backend = FakeBackend({})
    setup = Setup([], backend, api=Pools())
    await setup.take(snapshot(a_claim(), vm, unrecorded=frozenset({"forged"})), DeleteUnrecordedVM(vm))
    assert backend.terminated == (["forged"] if deleted else [])
    assert ("forged" in setup.record.own) is not deleted


@pytest.mark.sentence("5.71")
async def test_the_assignment_of_a_vm_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    vm = a_vm("a")
    await Setup([vm], FakeBackend()).take(snapshot(), ReserveVM(vm))
    (line,) = [each for each in caplog.records if hasattr(each, "event")]
    fields = ("event", "vm", "pool", "claim")
    assert [line.__dict__[field] for field in fields] == ["VMAssigning", "web-a", "web", "mine"]
