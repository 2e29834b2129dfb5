"""The table of acts: which are offered, which kubectl command they stand for, and when they ask."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest

from poolhouse.cli.main import poolhouse
from poolhouse.cli.output import Failed
from poolhouse.console.act import Target, fill
from poolhouse.console.acts import ACTS, BY_NAME, acts_of

Json = dict[str, Any]
POOL, VM, CLAIM = "VirtualMachinePool", "VirtualMachine", "VirtualMachineClaim"
WARM, SET, POLICY = "VirtualMachineWarmPool", "VirtualMachineInstanceReplicaSet", "MigrationPolicy"
POOL_OWNER = [{"apiVersion": "kubevirt.io/v1", "kind": POOL, "name": "web", "uid": "u", "controller": True}]


def target(kind: str, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Target:
    metadata = {"name": "web", "namespace": "shop", **metadata}
    return Target(kind, {"metadata": metadata, "spec": spec or {}, "status": status or {}})


def ended(*revisions: str) -> Json:
    """The status of a pool that was updated to each of the revisions."""
    history = [{"revision": each, "outcome": "Complete"} for each in revisions]
    return {"currentRevision": revisions[-1], "updateRevision": revisions[-1], "history": history}


STOPPED, RUNNING, PAUSED = ({"printableStatus": each} for each in ("Stopped", "Running", "Paused"))
WARM_POOL_OWNER = [{"kind": WARM, "name": "ci", "uid": "u", "controller": True}]
UPDATING = {"currentRevision": "web-1", "updateRevision": "web-2"}
MERGE = "--type merge -p"
STEPS = {"updateStrategy": {"proactive": {"steps": [{"pause": {}}]}}}


@pytest.mark.parametrize(
    ("found", "names"),
    [
        pytest.param(target(POOL), ["scale", "pause", "restart"], id="a new pool"),
        pytest.param(target(POOL, status=ended("web-1")), ["scale", "pause", "restart"], id="a pool with one revision"),
        pytest.param(
            target(POOL, status=ended("web-1", "web-2")), ["scale", "pause", "undo", "restart"], id="a pool at rest"
        ),
        pytest.param(target(POOL, {"paused": True}), ["scale", "resume", "restart"], id="a paused pool"),
        pytest.param(
            target(POOL, status=UPDATING), ["scale", "pause", "abort", "undo", "restart"], id="an update without steps"
        ),
        pytest.param(
            target(POOL, STEPS, UPDATING),
            ["scale", "pause", "promote", "abort", "undo", "restart"],
            id="an update with steps can be promoted",
        ),
        pytest.param(
            target(POOL, STEPS, {**UPDATING, "update": {"aborted": {"time": "t"}}}),
            ["scale", "pause", "retry", "undo", "restart"],
            id="an aborted update can be tried again",
        ),
        pytest.param(target(SET), ["scale", "pause"], id="a replica set"),
        pytest.param(target(WARM), ["scale", "pause", "claim"], id="a warm pool"),
        pytest.param(target(CLAIM, status={"phase": "Ready"}), ["release"], id="a claim"),
        pytest.param(
            target(CLAIM, status={"phase": "Ready", "expiresAt": "2026-03-01T12:00:00Z"}),
            ["extend", "release"],
            id="a claim that expires",
        ),
        pytest.param(target(CLAIM, status={"phase": "Released"}), [], id="a claim that has ended"),
        pytest.param(target(CLAIM, {"release": True}), [], id="a claim that is being released"),
        pytest.param(target(POLICY), [], id="a policy"),
        pytest.param(target(VM), ["snapshot"], id="a VM of nobody"),
        pytest.param(target(VM, status=STOPPED), ["vm-start", "snapshot"], id="a stopped VM"),
        pytest.param(target(VM, status=RUNNING), ["vm-stop", "vm-restart", "vm-pause", "snapshot"], id="a running VM"),
        pytest.param(target(VM, status=PAUSED), ["vm-stop", "vm-restart", "vm-unpause", "snapshot"], id="a paused VM"),
        pytest.param(
            target(VM, status={"printableStatus": "Migrating"}), ["vm-stop", "snapshot"], id="a VM that is migrating"
        ),
        pytest.param(
            target(VM, status=RUNNING, ownerReferences=WARM_POOL_OWNER), [], id="its warm pool decides whether it runs"
        ),
        pytest.param(target(VM, ownerReferences=POOL_OWNER), ["snapshot", "detach", "protect"], id="a VM of a pool"),
        pytest.param(
            target(VM, ownerReferences=POOL_OWNER, annotations={"poolhouse.dev/scale-in": "Protect"}),
            ["snapshot", "detach", "unprotect"],
            id="a protected VM",
        ),
        pytest.param(target(VM, labels={"poolhouse.dev/pool": "web"}), ["snapshot", "attach"], id="a detached VM"),
    ],
)
def test_an_object_offers_the_acts_that_make_sense(found: Target, names: list[str]) -> None:
    assert [each.name for each in acts_of(found)] == names


@pytest.mark.parametrize(
    ("name", "found", "values", "command"),
    [
        ("scale", target(POOL), {"replicas": "5"}, "scale virtualmachinepool.kubevirt.io/web --replicas=5 -n shop"),
        ("scale", target(POOL), {}, "scale virtualmachinepool.kubevirt.io/web --replicas={replicas} -n shop"),
        ("pause", target(POOL), {}, "poolhouse rollout pause web -n shop"),
        (
            "pause",
            target(SET),
            {},
            f'patch virtualmachineinstancereplicaset.kubevirt.io/web {MERGE} \'{{"spec":{{"paused":true}}}}\' -n shop',
        ),
        (
            "resume",
            target(WARM),
            {},
            f'patch virtualmachinewarmpool.poolhouse.dev/web {MERGE} \'{{"spec":{{"paused":false}}}}\' -n shop',
        ),
        ("promote", target(POOL), {"step": "2"}, "poolhouse rollout promote web --step 2 -n shop"),
        ("undo", target(POOL), {"revision": ""}, "poolhouse rollout undo web -n shop"),
        ("undo", target(POOL), {"revision": "3"}, "poolhouse rollout undo web --to-revision 3 -n shop"),
        ("claim", target(WARM), {"name": "", "ttl": ""}, "poolhouse claim --pool web -n shop"),
        ("claim", target(WARM), {"name": "a b", "ttl": "60"}, "poolhouse claim 'a b' --pool web --ttl 60 -n shop"),
        ("extend", target(CLAIM), {"by": "2h"}, "poolhouse claim extend web --by 2h -n shop"),
        ("release", target(CLAIM), {}, "poolhouse release web -n shop"),
        ("vm-stop", target(VM), {}, "virt stop web -n shop"),
        ("vm-pause", target(VM), {}, "virt pause vm web -n shop"),
        (
            "restore",
            target(VM),
            {"snapshot": "before"},
            """create -f - <<< '{"apiVersion":"snapshot.kubevirt.io/v1beta1","kind":"VirtualMachineRestore","""
            """"metadata":{"generateName":"web-"},"spec":{"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","""
            """"name":"web"},"virtualMachineSnapshotName":"before","targetReadinessPolicy":"StopTarget","""
            """"volumeRestorePolicy":"InPlace"}}' -n shop""",
        ),
        ("protect", target(VM), {}, "annotate vm/web poolhouse.dev/scale-in=Protect --overwrite -n shop"),
    ],
)
def test_an_act_shows_its_command(name: str, found: Target, values: dict[str, str], command: str) -> None:
    assert BY_NAME[name].shell(found, values) == f"kubectl {command}"


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_a_command_of_poolhouse_exists_with_its_options(act: Any) -> None:
    values = {"replicas": "1", "revision": "1", "step": "1", "name": "mine", "ttl": "60", "snapshot": "s", "by": "1h"}
    for kind in act.kinds:
        words = shlex.split(act.shell(target(kind), values))[1:]
        if words[0] != "poolhouse":
            assert words[0] in ("scale", "patch", "annotate", "virt", "create")
            continue
        command: click.Command = poolhouse
        rest = words[1:]
        while isinstance(command, click.Group):
            context = click.Context(command)
            if rest[0] not in command.list_commands(context):
                rest = ["create", *rest]  # the default command of `claim`
            found, rest = command.get_command(context, rest[0]), rest[1:]
            assert found is not None
            command = found
        command.make_context(act.name, rest, resilient_parsing=True)
        options = {each for parameter in command.params for each in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= options


WITH_DISK = {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {}}], "template": {"spec": {}}}}
OFFLINE = {"proactive": {"statePreservation": "Offline"}}


@pytest.mark.parametrize(
    ("name", "found", "values", "says"),
    [
        pytest.param("scale", target(POOL, {"replicas": 3}), {"replicas": "1"}, "web deletes 2 VMs.", id="scale-in"),
        pytest.param(
            "scale",
            target(POOL, {"replicas": 3, "template": WITH_DISK}, uid="u"),
            {"replicas": "2"},
            "web deletes 1 VM. The disks are deleted.",
            id="disks are deleted",
        ),
        pytest.param(
            "scale",
            target(POOL, {"replicas": 3, "template": WITH_DISK, "scaleInStrategy": OFFLINE}, uid="u"),
            {"replicas": "2"},
            "web deletes 1 VM. The disks are retained without a time limit, for the next VM of the same name.",
            id="disks are retained",
        ),
        pytest.param("scale", target(POOL, {"replicas": 3}), {"replicas": "3"}, "", id="the same size"),
        pytest.param("scale", target(POOL, {"replicas": 3}), {"replicas": "9"}, "", id="scale-out"),
        pytest.param("scale", target(SET, {"replicas": 1}), {"replicas": "0"}, "web deletes 1 VMI.", id="VMIs"),
        pytest.param(
            "release",
            target(CLAIM, status={"vmRef": {"name": "warm-1"}}),
            {},
            "warm-1 and its disks are deleted.",
            id="release",
        ),
        pytest.param("release", target(CLAIM), {}, "The claim does not get a VM any more.", id="release while queued"),
        pytest.param(
            "restore",
            target(VM),
            {"snapshot": "before"},
            "web is stopped, and loses what it has written since before.",
            id="restore",
        ),
        pytest.param("snapshot", target(VM), {}, "", id="a snapshot destroys nothing"),
        pytest.param("pause", target(POOL), {}, "", id="a pause destroys nothing"),
        pytest.param("detach", target(VM), {}, "", id="a detached VM keeps running"),
    ],
)
def test_an_act_that_destroys_says_what(name: str, found: Target, values: dict[str, str], says: str) -> None:
    assert BY_NAME[name].destroys(found, values) == says


@pytest.mark.parametrize(
    ("status", "step"),
    [({}, "1"), ({"update": {"revision": "web-2"}}, "1"), ({"update": {"revision": "web-2", "stepsDone": 1}}, "2")],
)
def test_a_promotion_names_the_step_that_the_page_shows(status: dict[str, Any], step: str) -> None:
    (field,) = BY_NAME["promote"].fields
    assert (field.type, field.value(target(POOL, STEPS, {**UPDATING, **status}))) == ("hidden", step)


@pytest.mark.parametrize("name", ["abort", "undo", "restart"])
def test_an_act_that_restarts_vms_asks(name: str) -> None:
    assert "restart" in BY_NAME[name].destroys(target(POOL), {})


@pytest.mark.parametrize("text", ["", "-1", "two", "1.5", "1e3", "100001", "99999999999"])
def test_a_number_of_replicas_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="replicas: must be a number"):
        BY_NAME["scale"].destroys(target(POOL), {"replicas": text})


@pytest.mark.parametrize("name", ["", "x' -n other '", "a/b", "-a"])
def test_a_name_of_a_snapshot_is_refused(name: str) -> None:
    with pytest.raises(Failed, match="snapshot: must be the name of a snapshot"):
        BY_NAME["restore"].destroys(target(VM), {"snapshot": name})


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        pytest.param(target(VM), True, id="a VM of nobody"),
        pytest.param(target(VM, labels={"poolhouse.dev/pool": "web"}), True, id="a detached VM"),
        pytest.param(target(VM, ownerReferences=POOL_OWNER), False, id="the pool restores its VMs"),
        pytest.param(target(VM, ownerReferences=WARM_POOL_OWNER), False, id="a VM of a warm pool"),
    ],
)
def test_a_vm_without_a_controller_can_be_restored(found: Target, allowed: bool) -> None:
    assert BY_NAME["restore"].available(found) is allowed


def test_values_cannot_leave_the_command() -> None:
    assert fill("run[ --name {name}]", {"name": "x; rm -rf /"}) == "run --name 'x; rm -rf /'"
    assert fill("run {name}", {"name": "{other}"}) == "run '{other}'"
