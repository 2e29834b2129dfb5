"""What the log in a pool's status says about its actions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controllers.pool.actions import Action, Create, Delete, Heal, ReleaseDisks, Restart, Update
from controllers.pool.decisions import decisions
from controllers.shared.decisions import decision
from poolhouse.api.kinds.decisions import Decision
from tests.controllers.pool.builders import NOW, snapshot, vm

TIME = "2026-03-01T12:00:00Z"
VM = f"web-1/{vm(1).uid[:8]}"


@pytest.mark.parametrize(
    ("replicas", "action", "logged"),
    [
        pytest.param(
            1,
            Delete("web-1", vm(1).uid, "7", "2 VMs exist, 1 is wanted"),
            [decision(TIME, "SuccessfulDelete", "2 VMs exist, 1 is wanted", VM, set_by="kubectl-scale")],
            id="scale-in names the client that set replicas",
        ),
        pytest.param(
            1,
            Delete("web-1", vm(1).uid, "7", "excess", retain_disks=True),
            [decision(TIME, "SuccessfulDelete", "excess; its disks are retained", VM, set_by="kubectl-scale")],
            id="scale-in with retained disks",
        ),
        pytest.param(
            2,
            Heal("web-1", vm(1).uid, "3 starts failed"),
            [decision(TIME, "SuccessfulHeal", "3 starts failed", VM)],
            id="healing has no client",
        ),
        pytest.param(
            2,
            Update("web-1", vm(1).uid, 1, "r0", "r1", "outdated"),
            [decision(TIME, "SuccessfulUpdate", "outdated", VM, set_by="argocd")],
            id="an update names the client that set the template",
        ),
        pytest.param(
            2,
            Restart("web-1", "a VMI", True, "the template has changed"),
            [decision(TIME, "SuccessfulRestart", "the template has changed", VM)],
            id="the UID is the VM's, not the VMI's",
        ),
        pytest.param(
            3,
            Create("web-3", 3, "r1", "2 of 3 VMs exist"),
            [decision(TIME, "SuccessfulCreate", "2 of 3 VMs exist", "web-3")],
            id="a new VM has no UID yet",
        ),
        pytest.param(2, ReleaseDisks("web-1", "u", (), "", False, "", "kept"), [], id="a step of a deletion"),
    ],
)
def test_the_log_of_an_action(replicas: int, action: Action, logged: list[Decision]) -> None:
    found = snapshot(replicas, vm(1), vm(2))
    found = replace(found, pool=replace(found.pool, replicas_by="kubectl-scale", template_by="argocd"))
    assert list(decisions(found, [action], NOW)) == logged
