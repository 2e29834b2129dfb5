"""The commands for pools against the real API server, with a running controller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from controllers.pool.pools import POOLS
from poolhouse.api.kinds.tracking_marks import without_tracking_marks
from poolhouse.runtime.resource import VMS
from tests.builders import manifest as build_manifest
from tests.cluster.pooling import Place, controller, namespace, template, until
from tests.cluster.shell import Shell

Json = dict[str, Any]


@pytest_asyncio.fixture
async def shell(control_plane: Any) -> AsyncIterator[Shell[Place]]:
    async with namespace(control_plane.kubeconfig, "cli") as place, controller(control_plane.kubeconfig):
        yield Shell(place, control_plane.kubeconfig)


def manifest(replicas: int, **spec: Any) -> Json:
    return build_manifest(POOLS, "web", {"replicas": replicas, "template": template(), **spec})


@pytest.mark.sentence("1.29")
async def test_a_vm_is_detached_replaced_and_put_back(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2)
    await until(place.names, ["web-1", "web-2"])
    await place.meta("web-1", labels={"kustomize.toolkit.fluxcd.io/name": "shop"})
    assert (await shell.json("detach", "web-1"))["pool"] == "web"
    assert not without_tracking_marks((await place.vms())["web-1"]["metadata"])
    await until(place.names, ["web-1", "web-2", "web-3"])
    again = await shell.run("detach", "web-1")
    assert (again.exit_code, again.stderr) == (1, "Error: web-1 is in no pool\n")
    assert "attach puts it back" in (await shell.json("why", "web-1"))["present"][0]
    await until(lambda: reasons(shell, "web-1"), ["SuccessfulCreate", "Detached"])
    await place.meta("web-1", annotations={"poolhouse.dev/scale-in": "Protect"})
    asked = await shell.run("attach", "web-1")
    [chosen] = {"web-2", "web-3"} & set(asked.stderr.replace(";", "").split())
    assert (asked.exit_code, f"scale-in deletes {chosen}; protect" in asked.stderr) == (1, True)
    assert not (await place.api.get(VMS, place.namespace, "web-1"))["metadata"].get("ownerReferences")
    told = await shell.json("attach", "web-1", "--yes")
    assert (told["excess"], told["deletes"]) == (1, [chosen])
    await until(lambda: count(place), 2)
    assert await place.names() == sorted({"web-1", "web-2", "web-3"} - {chosen})
    await until(lambda: reasons(shell, "web-1"), ["SuccessfulCreate", "Detached", "Attached"])
    await place.vm("db-1")
    refused = await shell.run("attach", "db-1", "--to", "web")
    assert refused.exit_code == 1
    assert "db-1 can't be in web: its VMs are named web-1, web-2 and so on" in refused.stderr


async def test_vms_of_a_backup_are_named_and_taken_back(shell: Shell[Place]) -> None:
    """As Velero restores them: with new UIDs, without owners, before their pool."""
    place = shell.place
    made = await place.pool(2)
    await until(place.names, ["web-1", "web-2"])
    saved = (await place.vms()).values()
    await place.api.delete(POOLS, place.namespace, "web")
    await until(place.names, [])
    for vm in saved:
        metadata = {key: vm["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        await place.api.create(VMS, {**vm, "metadata": metadata, "status": {}})
    restored = {vm["metadata"]["uid"] for vm in (await place.vms()).values()}
    await place.pool(2, paused=True)

    async def unowned() -> bool:
        found = await place.condition("UnownedVMs")
        return found.get("status") == "True" and found["message"].startswith("web-1, web-2: ")

    await until(unowned, True)
    assert made["metadata"]["uid"] != (await place.seen())["metadata"]["uid"]
    wrong = await shell.run("attach", "--all")
    assert (wrong.exit_code, "--all needs --to POOL" in wrong.stderr) == (2, True)
    told = await shell.json("attach", "--all", "--to", "web")
    assert (told["vms"], told["excess"]) == (["web-1", "web-2"], 0)

    async def settled() -> Any:
        found = await place.seen()
        return found["status"].get("replicas"), (await place.condition("UnownedVMs")).get("status")

    await until(settled, (2, "False"))  # before, a pool that is not paused would make other VMs
    await place.change(paused=False)
    await until(lambda: observed(place), True)
    assert {vm["metadata"]["uid"] for vm in (await place.vms()).values()} == restored
    none = await shell.run("attach", "--all", "--to", "web")
    assert "all VMs with the names and the label of web have an owner" in none.stderr


async def test_detach_from_a_paused_pool_announces_a_late_replacement(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(1)
    await until(place.names, ["web-1"])
    await place.change(paused=True)
    told = await shell.run("detach", "web-1")
    assert "creates a replacement when it is resumed, because it is paused" in told.stdout
    await place.change(paused=False)
    await until(place.names, ["web-1", "web-2"])
    await place.change(paused=True)
    asked = await shell.run("attach", "web-1")
    assert (asked.exit_code, "when web is resumed, because it is paused; protect" in asked.stderr) == (1, True)


async def test_a_plan_lists_the_actions_and_changes_nothing(shell: Shell[Place]) -> None:
    place = shell.place
    answer = await shell.json("plan", "-f", "-", document=manifest(2))
    assert [(row["action"], row["vm"]) for row in answer["plan"]] == [("Create", "web-1"), ("Create", "web-2")]
    assert await place.names() == []
    await place.pool(2)
    await until(place.names, ["web-1", "web-2"])
    answer = await shell.json("plan", "-f", "-", document=manifest(1))
    assert [row["action"] for row in answer["plan"]] == ["Delete"]
    await place.change(replicas=1)
    await until(lambda: count(place), 1)
    assert await place.names() == sorted({"web-1", "web-2"} - {answer["plan"][0]["vm"]}), "as it was foreseen"


async def test_a_plan_keeps_what_another_client_has_set(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2)
    await until(place.names, ["web-1", "web-2"])
    await place.change(updateStrategy={"proactive": {"steps": [{"setReplicas": 1}, {"pause": {}}]}})
    changed = template()
    changed["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "192Mi"}
    for options in ((), ("--server-side", "--force-conflicts")):
        answer = await shell.json("plan", "-f", "-", *options, document=manifest(2, template=changed))
        assert len(answer["update"]["steps"]) == 2, options
    refused = await shell.run("plan", "-f", "-", "--server-side", document=manifest(5))
    assert (refused.exit_code, "spec.replicas: conflict" in refused.stderr) == (1, True)


async def test_a_plan_of_an_invalid_pool_reports_every_problem(shell: Shell[Place]) -> None:
    wrong = manifest(2, maxUnavailable="some", updateStrategy={"unmanaged": {}, "opportunistic": {}})
    result = await shell.run("plan", "-f", "-", document=wrong)
    assert result.exit_code == 1
    assert "spec.maxUnavailable" in result.stderr
    assert "spec.updateStrategy" in result.stderr


async def test_a_template_is_taken_back(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(1)
    await until(lambda: revisions(shell), 1)
    changed = template()
    changed["metadata"] = {"labels": {"version": "two"}}
    await place.change(template=changed)
    await until(lambda: revisions(shell), 2)
    rows = await shell.json("rollout", "history", "web")
    assert rows[1]["changes"] == ['template.metadata: nothing -> {"labels": {"version": "two"}}']
    planned = await shell.json("rollout", "undo", "web", "--dry-run")
    assert [(row["action"], row["vm"]) for row in planned["plan"]] == [("Update", "web-1")]
    assert (await place.seen())["spec"]["template"] == changed, "a dry run changes nothing"
    shown = await shell.run("rollout", "undo", "web", "--dry-run")
    assert shown.stdout.splitlines()[0] == "web: 1 action in 1 round, if all succeed"
    assert (await shell.json("rollout", "undo", "web"))["revision"] == 1
    assert (await place.seen())["spec"]["template"] == template()
    lost = await shell.run("rollout", "undo", "web", "--to-revision", "9")
    assert (lost.exit_code, "there are" in lost.stderr) == (1, True)


async def test_an_update_is_promoted_and_repeated(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(2, updateStrategy={"proactive": {"steps": [{"setReplicas": 1}, {"pause": {}}]}})
    await until(place.names, ["web-1", "web-2"])
    refused = await shell.run("rollout", "promote", "web")
    assert "web has no step to leave" in refused.stderr
    # A restart is an update, whose steps take hold.
    await until(lambda: observed(place), True)
    await shell.json("rollout", "restart", "web")
    await until(lambda: observed(place), True)
    await until(lambda: paused_or_first(place), True)
    refused = await shell.run("rollout", "promote", "web", "--step", "3")
    assert "the update has 2 steps, not 3" in refused.stderr
    assert (await shell.json("rollout", "promote", "web", "--full"))["full"] is True
    await until(lambda: updated(place), 2)


async def observed(place: Place) -> bool:
    pool = await place.seen()
    return bool((pool.get("status") or {}).get("observedGeneration") == pool["metadata"]["generation"])


async def paused_or_first(place: Place) -> bool:
    update = ((await place.seen()).get("status") or {}).get("update") or {}
    return bool(update.get("stepsDone", 2) < 2)


async def updated(place: Place) -> int:
    return int(((await place.seen()).get("status") or {}).get("updatedReplicas", 0))


async def test_why_explains_the_past_the_present_and_the_next_actions(shell: Shell[Place]) -> None:
    place = shell.place
    await place.pool(1)
    await until(place.names, ["web-1"])
    await until(lambda: reasons(shell, "web-1"), ["SuccessfulCreate"])
    await shell.json("rollout", "pause", "web")
    told = await shell.json("why", "web-1")
    assert "its pool is paused" in told["present"]
    await until(lambda: observed(place), True)
    await place.api.delete(VMS, place.namespace, "web-1")
    await until(place.names, [])
    assert not (await shell.json("why", "web-1"))["exists"]
    assert (await shell.run("why", "db-7")).exit_code == 1
    asked_of_a_pool = await shell.run("why", "web")
    assert (asked_of_a_pool.exit_code, "web is a pool, not a VM" in asked_of_a_pool.stderr) == (1, True)


async def test_a_cluster_that_is_not_there_exits_with_3(shell: Shell[Place], tmp_path: Path) -> None:
    document = yaml.safe_load(shell.kubeconfig.read_text())
    for each in document["clusters"]:
        each["cluster"]["server"] = "https://127.0.0.1:9"
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(yaml.safe_dump(document))
    assert (await Shell(shell.place, nowhere).run("why", "web-1")).exit_code == 3
    assert (await Shell(shell.place, tmp_path / "none").run("why", "web-1")).exit_code == 1


async def revisions(shell: Shell[Place]) -> int:
    return len(await shell.json("rollout", "history", "web"))


async def reasons(shell: Shell[Place], vm: str) -> list[str]:
    result = await shell.run("why", vm, "-o", "json")
    return [each["reason"] for each in json.loads(result.stdout)["past"]] if result.exit_code == 0 else []


async def count(place: Place) -> int:
    return len(await place.vms())
