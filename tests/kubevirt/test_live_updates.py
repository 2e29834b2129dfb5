"""Which changes KubeVirt applies to a running VM. Each row is a sentence about KubeVirt."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt import live_updates
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_updates import LiveFields, RunningGuest

GIB = 1 << 30
NOW = LiveFields(sockets=2, memory=2 * GIB, placement="here")
GUEST = RunningGuest(NOW, NOW, "amd64", max_sockets=8, max_memory=8 * GIB, boot_memory=2 * GIB)
LIVE = ClusterSettings(versions=("v1.9.0",), update_methods=frozenset({"LiveMigrate"}))


def fields(**given: Any) -> LiveFields:
    return LiveFields(**{"sockets": 2, "memory": 2 * GIB, "placement": "here", **given})


def guest(**given: Any) -> RunningGuest:
    facts: dict[str, Any] = {"spec": NOW, "shown": NOW, "architecture": "amd64"}
    return RunningGuest(**facts | {"max_sockets": 8, "max_memory": 8 * GIB, "boot_memory": 2 * GIB} | given)


@pytest.mark.parametrize(
    ("wanted", "of", "settings", "expected"),
    [
        pytest.param(fields(sockets=8), GUEST, LIVE, "", id="sockets up to the maximum of the VMI"),
        pytest.param(fields(sockets=9), GUEST, LIVE, "at most 8 CPU sockets", id="sockets above it"),
        pytest.param(fields(sockets=1), GUEST, LIVE, "removes no CPU sockets", id="fewer sockets"),
        pytest.param(fields(sockets=None), GUEST, LIVE, "only one of the templates", id="no sockets"),
        pytest.param(
            fields(sockets=3), guest(max_sockets=None), LIVE, "at most 2", id="a VMI that started without a maximum"
        ),
        pytest.param(fields(sockets=3), guest(architecture="arm64"), LIVE, "on arm64", id="sockets on arm64"),
        pytest.param(fields(memory=8 * GIB), GUEST, LIVE, "", id="memory up to the maximum of the VMI"),
        pytest.param(fields(memory=8 * GIB + (2 << 20)), GUEST, LIVE, "at most 8Gi", id="memory above it"),
        pytest.param(
            fields(memory=2 * GIB),
            guest(spec=fields(memory=4 * GIB), shown=fields(memory=4 * GIB)),
            LIVE,
            "",
            id="memory is taken back down to what the guest started with",
        ),
        pytest.param(fields(memory=GIB), GUEST, LIVE, "started with 2Gi", id="memory below it"),
        pytest.param(fields(memory=3 * GIB + 1), GUEST, LIVE, "multiple of 2Mi", id="memory that is not aligned"),
        pytest.param(
            fields(memory=3 * GIB + (2 << 20)), guest(block=GIB), LIVE, "multiple of 1Gi", id="huge pages of 1Gi"
        ),
        pytest.param(
            fields(memory=4 * GIB), guest(max_memory=None), LIVE, "no maxGuest", id="a guest without memory hotplug"
        ),
        pytest.param(
            fields(sockets=4, memory=GIB), GUEST, LIVE, "started with", id="one field that needs a restart is enough"
        ),
        pytest.param(
            fields(sockets=3),
            guest(not_migratable="a disk is on one node"),
            LIVE,
            "cannot be migrated: a disk is on one node",
            id="sockets of a VMI that cannot be migrated",
        ),
        pytest.param(
            fields(placement="there"), guest(not_migratable="a disk"), LIVE, "", id="placement needs no migration"
        ),
        pytest.param(fields(placement="there"), GUEST, ClusterSettings(versions=("v1.6.0",)), "", id="no LiveMigrate"),
        pytest.param(
            fields(sockets=3),
            GUEST,
            ClusterSettings(versions=("v1.9.0",), update_methods=frozenset({"Evict"})),
            "lacks LiveMigrate",
            id="sockets without LiveMigrate",
        ),
        pytest.param(
            fields(placement="there"), GUEST, ClusterSettings(versions=("v1.5.2",)), "vmRolloutStrategy", id="1.5"
        ),
        pytest.param(
            fields(placement="there"),
            GUEST,
            ClusterSettings(versions=("v1.5.2",), rollout_strategy="LiveUpdate"),
            "",
            id="1.5 with LiveUpdate",
        ),
        pytest.param(
            fields(placement="there"),
            GUEST,
            ClusterSettings(versions=("v1.9.0",), rollout_strategy="Stage"),
            "is Stage",
            id="Stage",
        ),
        pytest.param(fields(placement="there"), GUEST, None, "cannot be read", id="an unknown cluster"),
    ],
)
def test_the_table_says_what_needs_a_restart(
    wanted: LiveFields, of: RunningGuest, settings: ClusterSettings | None, expected: str
) -> None:
    found = live_updates.refusal(live_updates.changed(of.spec, wanted), wanted, of, settings)
    assert expected in found
    assert bool(expected) is bool(found), found


def a_vmi(**status: Any) -> dict[str, Any]:
    spec = {
        "architecture": "amd64",
        "domain": {"cpu": {"sockets": 2, "maxSockets": 8}, "memory": {"guest": "2Gi", "maxGuest": "8Gi"}},
        "nodeSelector": {"zone": "a"},
    }
    return {"spec": spec, "status": status}


def test_a_vmi_tells_what_it_has_and_what_it_may_have() -> None:
    memory = {"guestAtBoot": "1Gi", "guestRequested": "2Gi", "guestCurrent": "1536Mi"}
    found = live_updates.read_guest(a_vmi(currentCPUTopology={"sockets": 1}, memory=memory))
    assert (found.spec.sockets, found.shown.sockets, found.max_sockets) == (2, 1, 8)
    assert (found.shown.memory, found.boot_memory, found.max_memory) == (2 * GIB, GIB, 8 * GIB)
    assert found.current_memory == 1536 << 20


def test_a_vmi_tells_why_it_cannot_migrate_and_how_the_last_migration_failed() -> None:
    migratable = {"type": "LiveMigratable", "status": "False", "message": "a disk is on one node"}
    state = {"failed": True, "completed": True, "endTimestamp": "2026-03-01T12:00:00Z", "failureReason": "too slow"}
    found = live_updates.read_guest(a_vmi(conditions=[migratable], migrationState=state))
    assert found.not_migratable == "a disk is on one node"
    assert (found.moved_at, found.failed_at, found.failure) == ("", "2026-03-01T12:00:00Z", "too slow")
    found = live_updates.read_guest(a_vmi(migrationState={"completed": True, "endTimestamp": "2026-03-01T12:00:00Z"}))
    assert (found.moved_at, found.failed_at) == ("2026-03-01T12:00:00Z", "")
    running = live_updates.read_guest(a_vmi(migrationState={"startTimestamp": "2026-03-01T12:00:00Z"}))
    assert (running.moved_at, running.failed_at) == ("", "")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, True, id="a status of an older KubeVirt, which says nothing"),
        pytest.param({"currentCPUTopology": {"sockets": 2}}, True, id="the sockets are plugged"),
        pytest.param({"currentCPUTopology": {"sockets": 1}}, False, id="the sockets wait for the migration"),
        pytest.param({"memory": {"guestRequested": "1Gi"}}, False, id="the memory waits for the migration"),
        pytest.param({"memory": {"guestRequested": "2Gi", "guestCurrent": "1Gi"}}, False, id="the guest plugs memory"),
        pytest.param({"memory": {"guestRequested": "2Gi", "guestCurrent": "3Gi"}}, True, id="the guest releases some"),
    ],
)
def test_a_vmi_shows_a_change_when_its_guest_has_it(status: dict[str, Any], expected: bool) -> None:
    document = a_vmi(**status)
    vm = live_updates.read_fields(document["spec"])
    assert live_updates.shows(live_updates.FIELDS, vm, live_updates.read_guest(document)) is expected


def test_placement_is_compared_by_its_meaning() -> None:
    one = {"tolerations": [{"key": "a", "operator": "Equal"}, {"key": "b"}], "affinity": {}, "nodeSelector": {}}
    other = {"tolerations": [{"key": "b"}, {"key": "a"}]}
    assert live_updates.read_fields(one) == live_updates.read_fields(other)
    assert live_updates.read_fields({"nodeSelector": {}}) == live_updates.read_fields({})
    assert live_updates.read_fields(one) != live_updates.read_fields({"tolerations": [{"key": "c"}]})


def test_a_template_that_gives_only_these_fields_is_like_one_that_gives_none() -> None:
    assert live_updates.without_fields({"domain": {"cpu": {"sockets": 2}, "memory": {"guest": "1Gi"}}}) == {
        "domain": {}
    }
    assert live_updates.refusal(live_updates.FIELDS[:1], fields(sockets=3), GUEST, LIVE) == ""


def test_without_the_fields_nothing_of_them_is_left() -> None:
    spec = {**a_vmi()["spec"], "volumes": []}
    assert live_updates.without_fields(spec) == {
        "architecture": "amd64",
        "domain": {"cpu": {"maxSockets": 8}, "memory": {"maxGuest": "8Gi"}},
        "volumes": [],
    }
