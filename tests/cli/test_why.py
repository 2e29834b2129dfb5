"""Events that mention a VM, and facts about its state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import click
import pytest

from controllers.pool.data_volumes import DiskState
from controllers.shared.vmi import VMI
from controllers.warmpool.decisions import DELETED_BY_OTHER
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.live_updates import RunningGuest
from poolhouse.cli.output import Failed
from poolhouse.cli.past import (
    Identity,
    Logged,
    concerns,
    deleted_vms,
    deletion_of,
    deletions,
    logged,
    mentions,
    merge,
    of_vm,
)
from poolhouse.cli.vm_facts import claim_facts, pool_facts, who_deleted
from poolhouse.cli.why import _lines, parse_reference
from poolhouse.cli.why_vm import choose
from tests.controllers.pool.builders import a_pool, halted, snapshot, vm, vmi


@pytest.mark.parametrize(
    ("kind", "name", "note", "speaks"),
    [
        pytest.param("VirtualMachine", "web", "started", True, id="about it"),
        pytest.param("VirtualMachineInstance", "web", "migrated", True, id="about its run"),
        pytest.param("VirtualMachinePool", "pool", "created web: 0 of 2 exist", True, id="it is named"),
        pytest.param("VirtualMachinePool", "pool", "created web-1: 0 of 2 exist", False, id="a longer name"),
        pytest.param("VirtualMachineInstanceReplicaSet", "web", "created web-c4h9x", False, id="a set of that name"),
    ],
)
def test_an_event_mentions_a_vm(kind: str, name: str, note: str, speaks: bool) -> None:
    assert mentions({"regarding": {"kind": kind, "name": name}, "note": note}, "web") is speaks


@pytest.mark.parametrize(
    ("strategy", "run", "said"),
    [
        pytest.param("Halted", None, "it should be halted", id="it is halted"),
        pytest.param("Manual", None, "it should be halted", id="nobody has started it"),
        pytest.param(
            "Manual",
            VMI("default", "web-1", "run", phase="Succeeded"),
            "its guest has shut down, and run strategy Manual does not start it again",
            id="it was shut down",
        ),
    ],
)
def test_why_a_vm_does_not_run(strategy: str, run: VMI | None, said: str) -> None:
    assert said in list(pool_facts(snapshot(1, halted(1, run_strategy=strategy, vmi=run)), "web-1"))


def test_a_required_restart_is_said() -> None:
    assert "KubeVirt says RestartRequired: memory" in list(
        pool_facts(snapshot(1, vm(1, restart_required="memory")), "web-1")
    )


def test_why_a_vm_does_not_start_is_said() -> None:
    nodes = "0/2 nodes are available: 2 Insufficient memory."
    run = VMI("default", "web-1", "run", phase="Scheduling", start_failure="Unschedulable", message=nodes)
    stuck = vm(1, ready=False, printable_status="ErrorUnschedulable", vmi=run)
    assert f"KubeVirt says Unschedulable: {nodes}" in list(pool_facts(snapshot(1, stuck), "web-1"))


def test_why_kubevirt_creates_no_vmi_is_said() -> None:
    refused = vm(1, ready=False, vmi_exists=False, start_refusal="exceeded quota")
    assert "KubeVirt says FailedCreate: exceeded quota" in list(pool_facts(snapshot(1, refused), "web-1"))


@pytest.mark.parametrize(
    ("name", "ready", "said"),
    [
        pytest.param("web-1", False, ["DataVolume root-1 is not ready: Pending: too small"], id="its disk"),
        pytest.param("web-2", False, [], id="the disk of another VM"),
        pytest.param("web-1", True, [], id="a running VM"),
    ],
)
def test_what_the_data_volume_of_a_vm_says(name: str, ready: bool, said: list[str]) -> None:
    vms = [vm(number, ready=ready) for number in (1, 2)]
    found = replace(snapshot(2, *vms), unready_disks={"root-1": DiskState("Pending", "too small")})
    assert [fact for fact in pool_facts(found, name) if "DataVolume" in fact] == said


BLOCKED = {"type": "EvictionBudgetFailure", "status": "True", "message": "a drain must wait"}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param(
            {"eviction_strategy": "LiveMigrate", "guest": RunningGuest(not_migratable="a GPU")},
            "KubeVirt refuses its eviction by evictionStrategy LiveMigrate, because it cannot be migrated: a GPU",
            id="KubeVirt cannot move it",
        ),
        pytest.param(
            {"eviction_strategy": "None"},
            "evictions of VMs of its pool: a drain must wait",
            id="the PodDisruptionBudget of its pool allows none",
        ),
        pytest.param({"eviction_strategy": "LiveMigrate"}, "", id="KubeVirt moves it"),
        pytest.param({"eviction_strategy": "None", "phase": "Scheduling"}, "", id="it does not run yet"),
    ],
)
def test_why_a_drain_waits_is_said(facts: Json, said: str) -> None:
    found = a_pool(1, status={"conditions": [BLOCKED]})
    run = vmi("web-1", **{"phase": "Running", **facts})
    about = [each for each in pool_facts(snapshot(found, vm(1, vmi=run)), "web-1") if "eviction" in each]
    assert about == [said] * bool(said)


def test_that_healing_is_off_is_said() -> None:
    off = "healing is off: spec.autohealing of its pool is not set"
    assert off in list(pool_facts(snapshot(1, vm(1)), "web-1"))
    assert off not in list(pool_facts(snapshot(a_pool(1, autohealing={}), vm(1)), "web-1"))


def event(time: int, note: str, *, kind: str = "VirtualMachinePool", name: str = "web", uid: str = "u-web") -> Json:
    regarding = {"kind": kind, "name": name, "uid": uid}
    return {"regarding": regarding, "note": note, "eventTime": f"2026-03-01T12:{time:02}:00.000000Z"}


VM = Identity("web-1", "1234abcd-0000", datetime(2026, 3, 1, 12, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("found", "about"),
    [
        pytest.param(event(31, "updated VM web-1: outdated"), True, id="after its creation"),
        pytest.param(event(29, "deleted VM web-1: excess"), False, id="about an earlier VM"),
        pytest.param(event(31, "", kind="VirtualMachine", name="web-1", uid="1234abcd-0000"), True, id="its UID"),
        pytest.param(event(31, "", kind="VirtualMachine", name="web-1", uid="other"), False, id="another UID"),
        pytest.param(event(29, "", kind="VirtualMachineInstance", name="web-1"), False, id="an earlier VMI"),
    ],
)
def test_events_of_an_earlier_vm_of_the_name_are_left_out(found: Json, about: bool) -> None:
    assert concerns(found, VM, parse_time(found["eventTime"])) is about
    assert concerns(found, Identity("web-1"), parse_time(found["eventTime"]))


def log(*entries: Json) -> Json:
    return {"kind": "VirtualMachinePool", "metadata": {"name": "web"}, "status": {"decisions": list(entries)}}


def entry(minute: int, reason: str, *vms: str, **given: str) -> Json:
    return {"time": f"2026-03-01T12:{minute:02}:00Z", "reason": reason, "message": "why", "vms": list(vms), **given}


LOG = log(
    entry(1, "SuccessfulDelete", "web-1/ffffffff", "web-2/eeeeeeee", setBy="kubectl-scale"),
    entry(30, "SuccessfulCreate", "web-1"),
    entry(31, "SuccessfulUpdate", "web-1/1234abcd", setBy="argocd"),
)


def test_the_log_tells_a_vm_from_an_earlier_one_of_its_name() -> None:
    found = list(logged([LOG], "web-1"))
    assert [each.reason for each in of_vm(found, VM)] == ["SuccessfulCreate", "SuccessfulUpdate"]
    assert len(of_vm(found, Identity("web-1"))) == 3
    deletion = deletion_of(found, Identity("web-1", "ffffffff"))
    assert (deletion.owner, deletion.set_by) == ("VirtualMachinePool web", "kubectl-scale")
    assert deletion_of(found, VM) is None


@pytest.mark.parametrize(
    ("text", "name", "uid"),
    [
        pytest.param("web-1", "web-1", "", id="a name"),
        pytest.param("vm/web-1", "web-1", "", id="kind and name"),
        pytest.param("vm/abcd1234", "abcd1234", "", id="a name that looks like a UID, after its kind"),
        pytest.param("web-1/abcd1234", "web-1", "abcd1234", id="as a status has it"),
        pytest.param("vm/web-1/abcd1234", "web-1", "abcd1234", id="kind, name and UID"),
        pytest.param("virtualmachine.kubevirt.io/web-1", "web-1", "", id="as kubectl prints it"),
        pytest.param(
            "web-1/abcd1234-0000-4000-8000-123456789abc", "web-1", "abcd1234-0000-4000-8000-123456789abc", id="UID"
        ),
    ],
)
def test_the_forms_of_a_vm(text: str, name: str, uid: str) -> None:
    assert parse_reference(text) == (name, uid)


@pytest.mark.parametrize(
    ("text", "command"),
    [("vpool/web", "rollout status"), ("vmwp/ci", "warmpool why")],
)
def test_another_kind_is_refused_with_its_command(text: str, command: str) -> None:
    with pytest.raises(click.UsageError, match=f"not a VM; `poolhouse {command}` explains it"):
        parse_reference(text)


@pytest.mark.parametrize("text", ["pod/web-1", "web-1/", "/abcd1234", "pod/web-1/abcd1234"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="vm/NAME"):
        parse_reference(text)


REUSED = log(
    entry(1, "SuccessfulCreate", "web-1"),
    entry(5, "SuccessfulUpdate", "web-1/aaaaaaaa"),
    entry(10, "SuccessfulDelete", "web-1/aaaaaaaa"),
    entry(10, "SuccessfulCreate", "web-1"),
    entry(15, "SuccessfulUpdate", "web-1/bbbbbbbb"),
    entry(20, "DeletedByOther", "web-1/bbbbbbbb"),
    entry(30, "SuccessfulCreate", "web-1"),
    entry(31, "SuccessfulUpdate", "web-1/1234abcd"),
)
EVENTS = [
    {**event(1, "created VM web-1"), "reason": "SuccessfulCreate"},
    {**event(10, "deleted VM web-1: excess"), "reason": "SuccessfulDelete"},
    {**event(10, "created VM web-1: 0 of 1 exist"), "reason": "SuccessfulCreate"},
    {**event(12, "", kind="VirtualMachine", name="web-1", uid="bbbbbbbb-1"), "reason": "Started"},
]


@pytest.mark.parametrize(
    ("present", "uid", "reference", "past", "events"),
    [
        pytest.param(VM, "", "web-1/1234abcd", ["SuccessfulCreate", "SuccessfulUpdate"], [], id="the one that exists"),
        pytest.param(
            *(VM, "bbbb", "web-1/bbbbbbbb", ["SuccessfulCreate", "SuccessfulUpdate", "DeletedByOther"]),
            ["SuccessfulCreate", "Started"],
            id="an earlier one by the beginning of its UID",
        ),
        pytest.param(
            *(Identity("web-1"), "aaaaaaaa", "web-1/aaaaaaaa"),
            ["SuccessfulCreate", "SuccessfulUpdate", "SuccessfulDelete"],
            ["SuccessfulCreate", "SuccessfulDelete"],
            id="the first one",
        ),
        pytest.param(
            *(Identity("web-1"), "", "web-1/1234abcd", ["SuccessfulCreate", "SuccessfulUpdate"]),
            [],
            id="the last one if none exists",
        ),
    ],
)
def test_vms_of_one_name_have_their_own_pasts(
    present: Identity, uid: str, reference: str, past: list[str], events: list[str]
) -> None:
    decisions = list(logged([REUSED], "web-1"))
    known = [*deleted_vms(present, decisions, EVENTS), *([present] if present.uid else [])]
    assert [each.short_uid for each in known] == ["aaaaaaaa", "bbbbbbbb", "1234abcd"]
    found = choose(known, "web-1", uid)
    assert found.reference == reference
    assert [each.reason for each in of_vm(decisions, found)] == past
    assert [each["reason"] for each in EVENTS if concerns(each, found, parse_time(each["eventTime"]))] == events


def test_all_deletions_are_listed_with_their_owners() -> None:
    owner = {**REUSED, "kind": "VirtualMachineWarmPool", "metadata": {"name": "ci", "namespace": "jobs"}}
    early = {**LOG, "metadata": {"name": "web", "namespace": "shop"}}
    found = [(each["vm"], each["owner"], each["reason"], each["setBy"]) for each in deletions([owner, early, {}])]
    assert found == [
        ("web-1/ffffffff", "vpool/web", "SuccessfulDelete", "kubectl-scale"),
        ("web-2/eeeeeeee", "vpool/web", "SuccessfulDelete", "kubectl-scale"),
        ("web-1/aaaaaaaa", "vmwp/ci", "SuccessfulDelete", None),
        ("web-1/bbbbbbbb", "vmwp/ci", "DeletedByOther", None),
    ]


def test_an_unknown_uid_names_the_known_ones() -> None:
    with pytest.raises(Failed, match="no VM web-1 with the UID cccc is known; there are web-1/1234abcd"):
        choose([VM], "web-1", "cccc")
    assert choose([], "web-1", "") == Identity("web-1")


@pytest.mark.parametrize(
    ("message", "claimed", "facts"),
    [
        pytest.param(DELETED_BY_OTHER, True, ["the claim exists, so the client deleted the VM itself"], id="the VM"),
        pytest.param(DELETED_BY_OTHER, False, ["the claim does not exist any more"], id="the claim"),
        pytest.param("another client than the warm pool deleted it", False, [], id="a VM without a claim"),
    ],
)
def test_what_another_client_deleted(message: str, claimed: bool, facts: list[str]) -> None:
    deletion = Logged(datetime(2026, 3, 1, tzinfo=UTC), "DeletedByOther", message, "", "abcd", "Pool ci")
    found = [each.partition(";")[0] for each in who_deleted(deletion, claimed=claimed)]
    assert found == facts
    assert not list(who_deleted(None, claimed=claimed))


def test_a_decision_with_an_event_is_not_told_twice() -> None:
    events = [{"time": "2026-03-01T12:31:02.5Z", "reason": "SuccessfulUpdate", "note": "updated VM web-1: why"}]
    rows = merge(events, list(logged([LOG], "web-1")))
    assert [(each["reason"], each.get("setBy")) for each in rows] == [
        ("SuccessfulDelete", "kubectl-scale"),
        ("SuccessfulCreate", None),
        ("SuccessfulUpdate", "argocd"),
    ]


@pytest.mark.parametrize(
    ("reason", "message", "note", "rows"),
    [
        pytest.param("SuccessfulUpdate", "why", "updated VM web-1: why", 1, id="the event has the decision's message"),
        pytest.param(
            "SuccessfulDelete",
            "why; its disks are retained",
            "deleted VM web-1, its disks are retained: why",
            1,
            id="the disks are retained",
        ),
        pytest.param("SuccessfulUpdate", "why", "updated VM web-1: another change", 2, id="another message"),
        pytest.param("SuccessfulUpdate", "", "updated VM web-1", 2, id="a decision without a message"),
    ],
)
def test_an_event_that_comes_long_after_its_decision(reason: str, message: str, note: str, rows: int) -> None:
    decision = {"time": "2026-03-01T12:31:00Z", "reason": reason, "message": message, "vms": ["web-1/1234abcd"]}
    events = [{"time": "2026-03-01T12:31:14.5Z", "reason": reason, "note": note}]
    assert len(merge(events, list(logged([log(decision)], "web-1")))) == rows


@pytest.mark.parametrize(
    ("kind", "reason", "message", "note"),
    [
        pytest.param("VirtualMachinePool", "SuccessfulUpdate", "why", "updated VM web-1: why", id="an update"),
        pytest.param(
            "VirtualMachinePool",
            "SuccessfulDelete",
            "why; its disks are retained",
            "deleted VM web-1, its disks are retained: why",
            id="a deletion with retained disks",
        ),
        pytest.param(
            "VirtualMachineInstanceReplicaSet", "SuccessfulCreate", "why", "created web-1: why", id="a replica set"
        ),
        pytest.param("VirtualMachinePool", "DeletedByOther", "who", "who", id="no action of the controller"),
        pytest.param("VirtualMachineWarmPool", "SuccessfulDelete", "why", "why", id="a warm pool"),
    ],
)
def test_a_decision_without_its_event_reads_like_the_event(kind: str, reason: str, message: str, note: str) -> None:
    decision = {"time": "2026-03-01T12:31:00Z", "reason": reason, "message": message, "vms": ["web-1/1234abcd"]}
    (row,) = merge([], list(logged([{**log(decision), "kind": kind}], "web-1")))
    assert row["note"] == note


def test_two_decisions_with_one_event_stay_two() -> None:
    entries = [entry(31, "SuccessfulUpdate", "web-1/1234abcd", setBy=client) for client in ("argocd", "kubectl")]
    entries[1]["time"] = "2026-03-01T12:31:06Z"
    events = [{"time": "2026-03-01T12:31:06.5Z", "reason": "SuccessfulUpdate", "note": "updated VM web-1: why"}]
    rows = merge(events, list(logged([log(*entries)], "web-1")))
    assert [(each["time"][:19], each["setBy"]) for each in rows] == [
        ("2026-03-01T12:31:00", "argocd"),
        ("2026-03-01T12:31:06", "kubectl"),
    ]


@pytest.mark.parametrize(
    ("status", "facts"),
    [
        pytest.param({"phase": "Ready", "vmRef": {"name": "other"}}, [], id="another VM"),
        pytest.param({"phase": "Ready", "vmRef": {"name": "ci-x", "uid": "e1"}}, [], id="a later VM of the name"),
        pytest.param(
            {"phase": "Expired", "vmRef": {"name": "ci-x"}, "finishedAt": "2026-03-01T12:00:00.5Z"},
            ["claim job of alice had it: the claim is Expired since 2026-03-01T12:00:00Z"],
            id="its claim has expired",
        ),
    ],
)
def test_the_claim_of_a_warm_vm(status: Json, facts: list[str]) -> None:
    claim = {"metadata": {"name": "job", "annotations": {"poolhouse.dev/requester": "alice"}}, "status": status}
    assert list(claim_facts(claim, Identity("ci-x", "abcd"))) == facts


@pytest.mark.parametrize("text", ["service/web", "a/b/c/d"])
def test_an_unknown_form_is_answered_with_all_forms(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"'{text}' is invalid: give .*, vmi/NAME, vmclaim/NAME or pod/NAME"):
        parse_reference(text)


def test_a_warm_vm_is_in_its_pool() -> None:
    found: Json = {"vm": "web-x1", "uid": "1", "pool": "", "controller": "VirtualMachineWarmPool web", "exists": True}
    found |= {"member": False, "deletion": None, "others": [], "past": [], "present": [], "next": []}
    assert list(_lines(found)) == [
        "web-x1 is in the warm pool web; `poolhouse warmpool why web` explains the pool",
    ]
