"""What a record of a claim adds to the stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.claim.memory import MAX_CACHE_LAG_SECONDS, ClaimRecord
from controllers.warmpool.agent import application_health
from tests.controllers.claim.builders import a_claim, claimed_vm


def test_a_written_vm_is_known_until_the_store_shows_it() -> None:
    record, old = ClaimRecord(vms_known=True), claimed_vm(resource_version="5")
    new = replace(old, resource_version="6", activated=True)
    record.remember(new, 0.0)
    (known,) = record.merged([old], 1.0)
    assert (known.resource_version, known.activated) == ("6", True)
    later = replace(old, resource_version="7")
    assert record.merged([later], 2.0) == (later,)
    assert record.merged([old], 3.0) == (old,), "a VM that the store has shown once is not remembered"


def test_a_vm_that_the_store_never_shows_is_known_for_a_while() -> None:
    record, created = ClaimRecord(vms_known=True), claimed_vm()
    record.remember(created, 0.0)
    assert [vm.uid for vm in record.merged([], MAX_CACHE_LAG_SECONDS - 1)] == [created.uid]
    assert record.vms_known
    assert record.merged([], MAX_CACHE_LAG_SECONDS + 1) == ()
    assert not record.vms_known, "then the API must be asked"


def test_a_vm_that_is_gone_does_not_return_with_the_answer_to_an_earlier_write() -> None:
    record, vm = ClaimRecord(vms_known=True), claimed_vm()
    record.vm_deleted(vm.uid)
    record.remember(vm, 0.0)
    assert record.merged([], 1.0) == ()
    record.listed([vm], 0.0)
    assert record.merged([], 1.0) == ()


def test_a_claim_looks_again_for_a_vm_that_the_store_does_not_show() -> None:
    record, vm = ClaimRecord(), claimed_vm()
    assert record.seconds_until_shown([], 0.0) is None
    record.remember(vm, 0.0)
    assert record.seconds_until_shown([vm], 5.0) is None
    assert record.seconds_until_shown([], 5.0) == MAX_CACHE_LAG_SECONDS - 5


def test_a_deleted_vm_stays_deleted_while_the_store_shows_its_last_version() -> None:
    record, vm = ClaimRecord(), claimed_vm(resource_version="5")
    record.remember(replace(vm, deleting=True), 0.0)
    assert [each.deleting for each in record.merged([vm], 1.0)] == [True]
    deleted = replace(vm, deleting=True, resource_version="6")
    assert record.merged([deleted], 2.0) == (deleted,)


def test_the_latest_claim_is_the_cached_or_the_written_one() -> None:
    record, cached, written = ClaimRecord(), a_claim(resourceVersion="7"), a_claim(resourceVersion="8")
    record.claim = written
    assert record.latest(cached) is written
    newer = a_claim(resourceVersion="9")
    assert record.latest(newer) is newer
    record.claim = written
    other = a_claim(uid="another", resourceVersion="1")
    assert record.latest(other) is other, "another claim of the same name"


@pytest.mark.parametrize(
    ("phase", "seconds", "terminated", "known"),
    [
        pytest.param("Running", 9.0, False, True, id="an answer counts for a period"),
        pytest.param("Running", 10.0, False, False, id="after a period the agent is asked again"),
        pytest.param("Running", 1.0, True, False, id="sooner while the application is being stopped"),
        pytest.param("Succeeded", 99.0, True, True, id="an application that was stopped stays stopped"),
    ],
)
def test_the_age_of_an_agents_answer(phase: str, seconds: float, terminated: bool, known: bool) -> None:
    health = application_health({"phase": phase})
    record = ClaimRecord(application_health=(health, 100.0), terminated_at=100.0 if terminated else None)
    assert record.recent_application_health(100.0 + seconds, 10.0) == (health if known else None)
