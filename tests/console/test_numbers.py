"""Status, conditions, metrics, the command line and the console show the same numbers of the same VMs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controllers.pool.actions import Update
from controllers.pool.metrics import PoolMetrics
from controllers.pool.plan import plan
from controllers.pool.rollback import with_abort
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.status import pool_status
from controllers.shared.vm import VM, LifecycleHold
from poolhouse.api.kinds.pool import POOL, PoolStatus, UpdateAbort, UpdateProgress
from poolhouse.cli.overview import object_row
from poolhouse.cli.updates import finished_vms, progress
from poolhouse.cli.vm_facts import pool_facts
from poolhouse.console import pool_page
from poolhouse.console.object_pages import numbers
from poolhouse.runtime.metrics import PREFIX
from tests.controllers.pool.builders import LIGHT, NOW, OLD, REVISION, a_pool, ago, leaving, snapshot, vm, vmi

SEEDS = range(400)
SENTENCES = {
    r"(\d+) of (\d+) VMs? ha(?:s|ve) the (?:former )?template": ("new", "replicas"),
    r"\b(\d+) (?:is|are) available\b": ("available",),
    r"(\d+) of (\d+) VMs? (?:is|are) available": ("available", "desired"),
    r"(\d+) of (\d+) VMs? (?:is|are) unavailable": ("unavailable", "desired"),
    r"(?<!of )\b(\d+) VMs? (?:is|are) unavailable": ("unavailable",),
    r"(\d+) of (\d+) VMs? exists?": ("replicas", "desired"),
    r"(\d+) VMs? (?:is|are) still to be deleted": ("excess",),
    r"all (\d+) VMs have the template, (\d+) (?:is|are) ready": ("desired", "ready"),
}
"""sentences with numbers in conditions and in messages of the command line, and what they count"""


def a_vm(chance: Random, ordinal: int) -> VM:
    name, revision = f"web-{ordinal}", chance.choice((REVISION, REVISION, OLD, LIGHT))
    if chance.random() < 0.1:
        return leaving(ordinal, revision=revision.label)
    exists, ready = chance.random() < 0.85, chance.random() < 0.7
    facts: dict[str, Any] = {
        "revision": revision.label,
        "vmi_exists": exists,
        "ready": exists and ready,
        "run_strategy": chance.choice(("Always", "Always", "Halted", "Manual", "RerunOnFailure")),
        "printable_status": chance.choice(("Running", "Starting", "ErrImagePull", "")),
        "start_failures": chance.choice((0, 0, 0, 2)),
        "scale_in": chance.choice(("", "", "Protect")),
    }
    facts["should_run"] = facts["run_strategy"] != "Halted"
    if exists:
        started_from = chance.choice((revision, revision, OLD)).label
        facts["vmi"] = vmi(
            name,
            revision=started_from,
            ready=ready or chance.random() < 0.2,
            phase=chance.choice(("Running", "Running", "Scheduling", "Failed")),
            node=chance.choice(("node-1", "node-2")),
            deleted_at=ago(1) if chance.random() < 0.05 else "",
        )
        if chance.random() < 0.1:
            facts["hold"] = LifecycleHold(chance.choice(("Terminating", "Restarting")), ago(9), f"run-{name}")
    return vm(ordinal, **facts)


def a_state(seed: int) -> PoolSnapshot:
    chance = Random(seed)
    calm, total = chance.random() < 0.1, chance.randrange(9)
    vms = [vm(ordinal) if calm else a_vm(chance, ordinal) for ordinal in range(1, total + 1)]
    steps = {"steps": [{"setReplicas": chance.randrange(1, 4)}, {"pause": {}}]}
    proactive: dict[str, Any] = chance.choice(({}, {}, steps, {"partition": 2}))
    strategy: dict[str, Any] = chance.choice(({"proactive": proactive}, {"proactive": proactive}, {"unmanaged": {}}))
    current, aborts = chance.choice((REVISION.name, OLD.name, "")), chance.random() < 0.2
    update = UpdateProgress(
        revision=REVISION.name,
        steps_done=chance.choice((0, 1)),
        aborted=UpdateAbort(reason="Aborted", message="a user aborted the update", time=ago(60)) if aborts else None,
    )
    status = PoolStatus(
        observed_generation=1,
        current_revision=current,
        update_revision=REVISION.name,
        last_progress_time=ago(chance.choice((10, 9999))),
        unavailable_replicas=chance.choice((0, 1)),
        update=chance.choice((update, update, None)),
    )
    pool = a_pool(total if calm else chance.randrange(9), updateStrategy=strategy, paused=chance.random() < 0.1)
    nodes = {"node-1": chance.random() < 0.8, "node-2": True}
    found = snapshot(replace(pool, status=status), *vms, nodes=nodes, waited_for=frozenset())
    return with_abort(found, NOW)


def counted(found: PoolSnapshot, status: PoolStatus) -> dict[str, int]:
    """What the numbers of the status are called in sentences, counted from the VMs one by one."""
    return {
        "desired": found.pool.spec.replicas,
        "replicas": status.replicas,
        "ready": status.ready_replicas,
        "new": sum(
            each.template == "new" for each in pool_page.members(found, plan(found, NOW)) if each.state != "deleting"
        ),
        "available": status.available_replicas,
        "unavailable": status.unavailable_replicas,
        "excess": max(0, status.replicas - found.pool.spec.replicas) + status.terminating_replicas,
    }


def document_of(found: PoolSnapshot, status: PoolStatus) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "web", "uid": "u-web", "generation": 1, "creationTimestamp": ago(3600)}
    return {"metadata": metadata, "spec": found.pool.spec.json(), "status": status.json()}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_show_the_same_numbers(seed: int) -> None:
    found = a_state(seed)
    decided = plan(found, NOW)
    status = pool_status(found, decided, NOW)
    document, members = document_of(found, status), pool_page.members(found, plan(found, NOW))
    picture, states = pool_page.picture(found, document, members, NOW), Counter(each.state for each in members)

    # The numbers of the status fit together.
    assert status.replicas + status.terminating_replicas == len(found.vms) == sum(states.values())
    assert status.available_replicas + status.unavailable_replicas == max(found.pool.spec.replicas, status.replicas)
    assert status.updated_available_replicas <= min(status.updated_replicas, status.available_replicas)

    # The page of the pool.
    assert picture["total"] == status.replicas == picture["new"] + picture["restart"] + picture["old"]
    assert states["ready"] + states["halted"] == status.available_replicas == picture["budget"]["available"]
    assert (states["held"], states["deleting"]) == (status.held_replicas, status.terminating_replicas)
    if found.aborted is None:
        assert picture["new"] == status.updated_replicas
    shown = dict(numbers(POOL, document))
    assert [shown[name] for name in ("Desired", "Current", "Ready", "Available", "Updated")] == [
        found.pool.spec.replicas,
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.updated_replicas,
    ]

    # The command line.
    row = object_row(POOL, document, NOW)
    assert (row["desired"], row["ready"], row["updated"]) == (
        found.pool.spec.replicas,
        status.ready_replicas,
        status.updated_replicas,
    )
    assert finished_vms(document) == (status.updated_available_replicas, found.pool.spec.replicas)
    updated = {each.name for each in decided.actions if isinstance(each, Update) and each.reason != "labels"}
    assert updated <= {each.name for each in members if each.template == "old"}

    # The metrics.
    metrics = PoolMetrics(registry := CollectorRegistry(), lambda: NOW)
    metrics.pool(found.pool, status)
    for name in ("replicas", "ready_replicas", "updated_replicas", "unavailable_replicas", "held_replicas"):
        value = registry.get_sample_value(f"{PREFIX}vmpool_{name}", {"namespace": "default", "vmpool": "web"})
        assert value == getattr(status, name), name

    # What sentences say.
    expected = counted(found, status)
    messages = [each.message for each in status.conditions] + [progress(document)[1], picture["message"]]
    for message in messages:
        for pattern, names in SENTENCES.items():
            for said in re.finditer(pattern, message):
                assert [*map(int, said.groups())] == [expected[name] for name in names], message


@pytest.mark.parametrize("seed", range(0, len(SEEDS), 8))
def test_a_vm_is_the_same_in_why_and_in_the_console(seed: int) -> None:
    found = a_state(seed)
    for member in pool_page.members(found, plan(found, NOW)):
        facts = list(pool_facts(found, member.name))
        assert ("it is ready" in facts) == (member.state == "ready")
        old = {"its template is outdated", "it gets the former template again"}
        assert (not old.isdisjoint(facts)) == (member.template == "old"), facts
        restart = any("needs a restart" in fact for fact in facts)
        assert restart == (member.template == "restart"), (member, facts)


def test_the_states_have_every_sentence() -> None:
    """The comparison would pass for ever if no message had a number."""
    said = set()
    for seed in SEEDS:
        found = a_state(seed)
        status = pool_status(found, plan(found, NOW), NOW)
        messages = [each.message for each in status.conditions] + [progress(document_of(found, status))[1]]
        said |= {pattern for pattern in SENTENCES for message in messages if re.search(pattern, message)}
    assert said == SENTENCES.keys()
