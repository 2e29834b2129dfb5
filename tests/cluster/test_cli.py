"""Output and completion of commands against a real API server, without controllers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from controllers.pool.pools import POOLS
from poolhouse.api.apimachinery.owner_references import controller_reference
from poolhouse.api.kinds import POOL, meta
from poolhouse.cli.completion import kubectl_answers
from poolhouse.cli.main import poolhouse
from poolhouse.runtime.events import EVENTS
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMS
from poolhouse.service.terminal import has_controls
from tests.builders import manifest
from tests.cluster.pooling import Place
from tests.defaulter.builders import nic, spec, vm


async def run(control_plane: Any, place: Place, *words: str) -> Result:
    options = ["--kubeconfig", str(control_plane.kubeconfig), "-n", place.namespace]
    return await asyncio.to_thread(CliRunner().invoke, poolhouse, [*words, *options])


async def test_a_pool_is_seen_in_its_namespace_and_in_all(control_plane: Any, place: Place) -> None:
    await place.pool(2)
    shown = await run(control_plane, place, "overview")
    assert [line.split()[:4] for line in shown.stdout.splitlines()] == [
        ["NAME", "DESIRED", "READY", "UPDATED"],
        ["vpool/web", "2", "0", "0"],
    ]
    assert (await run(control_plane, place, "overview", "-o", "name")).stdout == "virtualmachinepool.kubevirt.io/web\n"
    everywhere = json.loads((await run(control_plane, place, "overview", "-A", "-o", "json")).stdout)
    assert (place.namespace, "web") in [(row["namespace"], row["name"]) for row in everywhere]


async def test_a_cluster_without_poolhouses_services_is_wrong(control_plane: Any, place: Place) -> None:
    await place.pool(2)
    shown = await run(control_plane, place, "overview", "--wrong")
    assert (shown.exit_code, "no object is degraded" in shown.output) == (1, False)
    assert "Poolhouse itself has an outage: webhook: the API server stores objects" in shown.stderr


async def test_a_degraded_object_makes_overview_exit_with_1(control_plane: Any, place: Place) -> None:
    made = await place.pool(2)
    failing = {"type": "Stalled", "status": "True", "reason": "FailedCreate", "message": "quota"}
    failing |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"observedGeneration": 1, "conditions": [failing]}}
    await place.api.patch(POOLS, place.namespace, made["metadata"]["name"], status, subresource="status")
    shown = await run(control_plane, place, "overview", "--wrong")
    assert (shown.exit_code, "FailedCreate: quota" in shown.stdout) == (1, True)


async def test_rollout_status_does_not_call_a_pool_complete_whose_status_counts_other_vms(
    control_plane: Any, place: Place
) -> None:
    made = await place.pool(1)
    numbers = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), 1)
    status = {"observedGeneration": 1, **numbers}
    await place.api.patch(POOLS, place.namespace, "web", {"status": status}, subresource="status")
    early = await run(control_plane, place, "rollout", "status", "web", "--no-watch")
    assert early.stdout == "web: the controller has not observed the change yet\n"
    reference = controller_reference(POOL.api_version, POOL.kind, "web", made["metadata"]["uid"])
    await place.vm("web-1", ownerReferences=[reference])
    late = await run(control_plane, place, "rollout", "status", "web", "--no-watch")
    assert late.stdout == "web: its VM has the template, and is ready\n"


async def test_a_promotion_waits_until_the_controller_has_observed_the_change_before(
    control_plane: Any, place: Place
) -> None:
    await place.pool(2, updateStrategy={"proactive": {"steps": [{"setReplicas": 1}, {"pause": {}}]}})
    promotion = asyncio.create_task(run(control_plane, place, "rollout", "promote", "web"))
    done, _ = await asyncio.wait({promotion}, timeout=3)
    assert not done, "the status is older than the spec"
    status = {"observedGeneration": 1, "updateRevision": "web-b", "update": {"revision": "web-b", "stepsDone": 1}}
    await place.api.patch(POOLS, place.namespace, "web", {"status": status}, subresource="status")
    assert (await promotion).stdout == "web is promoted past step 2 of 2\n"


async def test_a_tree_of_what_is_there(control_plane: Any, place: Place) -> None:
    machine = await place.vm("db-1")
    await place.disk("root-1", machine)
    shown = (await run(control_plane, place, "tree", "db-1")).stdout.splitlines()
    assert [line.split()[-1] for line in shown[:2]] == ["vm/db-1", "dv/root-1"]
    lost = await run(control_plane, place, "tree", "vpool/none")
    assert (lost.exit_code, lost.stderr) == (1, f"Error: there is no vpool none in namespace {place.namespace}\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param(["why", "db"], ["db-1"], id="a VM"),
        pytest.param(["tree", "vpool/"], ["vpool/web"], id="behind its kind"),
        pytest.param(["rollout", "status", ""], ["web"], id="a pool"),
        pytest.param(["release", ""], [], id="there is none"),
    ],
)
async def test_names_are_completed(
    control_plane: Any, place: Place, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], found: list[str]
) -> None:
    monkeypatch.setattr("poolhouse.cli.completion.TIMEOUT_SECONDS", 60.0)
    await place.pool(0)
    await place.vm("db-1")
    *command, start = words
    options = ["--kubeconfig", str(control_plane.kubeconfig), "-n", place.namespace]
    told = await asyncio.to_thread(lambda: list(kubectl_answers([*command, *options, start])))
    assert [line.split("\t")[0] for line in told[:-1]] == found


async def test_fleet_reports_vms_in_their_namespace_and_in_all(control_plane: Any, place: Place) -> None:
    await place.api.create(VMS, vm(spec(nic()), "old", place.namespace))
    [row] = json.loads((await run(control_plane, place, "hardware", "fleet", "-o", "json")).stdout)
    assert (row["namespace"], row["name"], row["defaulted"], row["changes"]) == (place.namespace, "old", "No", [])
    everywhere = json.loads((await run(control_plane, place, "hardware", "fleet", "-A", "-o", "json")).stdout)
    assert row in everywhere


EVIL = "a\x1b[2J\x1b]0;x\x07\r\x9b31m\u202eb"
SHOWN = "a^[[2J^[]0;x\\x07\\r\\x9b31m\\u202eb"
OURS = re.compile(r"\x1b\[(?:3[0-7]|0)m")


async def spoil(place: Place) -> None:
    """Writes control characters wherever authors of objects, other controllers and the kubelet can write texts."""
    template = {**place.document(0)["spec"]["template"]}
    template["metadata"] = {**template.get("metadata", {}), "annotations": {"why": EVIL}}
    made = await place.pool(1, template=template)
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    failing = {"type": "Stalled", "status": "True", "reason": "FailedCreate", "message": EVIL, **since}
    status = {"status": {"observedGeneration": 1, "conditions": [failing]}}
    await place.api.patch(POOLS, place.namespace, "web", status, subresource="status")
    reference = controller_reference(POOL.api_version, POOL.kind, "web", made["metadata"]["uid"])
    machine = await place.vm("web-1", ownerReferences=[reference], annotations={"why": EVIL})
    state = {"printableStatus": EVIL, "conditions": [{**failing, "type": "Failure"}]}
    await place.api.patch(VMS, place.namespace, "web-1", {"status": state}, subresource="status")
    for number in (1, 2):
        metadata = {"labels": {meta.POOL: "web"}, "ownerReferences": [reference]}
        stored = manifest(CONTROLLER_REVISIONS, f"web-{number}x", None, place.namespace, **metadata)
        data = {"template": {"metadata": {"annotations": {f"why{EVIL}{number}": f"{number} {EVIL}"}}}}
        await place.api.create(CONTROLLER_REVISIONS, {**stored, "revision": number, "data": data})
    regarding = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": place.namespace}
    await place.api.create(
        EVENTS,
        {
            **manifest(EVENTS, "web-1.1", None, place.namespace),
            "regarding": {**regarding, "name": "web-1", "uid": machine["metadata"]["uid"]},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x",
            "reportingInstance": "x",
            "action": "x",
            "reason": "Broken",
            "note": EVIL,
            "type": "Warning",
        },
    )


SHOWN_BY = (
    ("overview",),
    ("overview", "-A", "--wrong"),
    ("tree", "web-1"),
    ("tree", "vpool/web"),
    ("why", "web-1"),
    ("rollout", "history", "web"),
)
"""commands that show a text of the cluster"""
OTHERS = (
    ("rollout", "status", "web", "--no-watch"),
    ("rollout", "undo", "web", "--to-revision", "9"),
    ("lifecycle", "list"),
    ("disks",),
    ("hardware", "web-1"),
    ("hardware", "fleet"),
    ("policy", "explain", "web-1"),
    ("warmpool", "status"),
    ("claim", "list"),
    ("detach", EVIL),
    ("tree", f"vpool/{EVIL}"),
    ("rollout", "status", EVIL),
    ("policy", "explain", EVIL),
)


async def test_texts_of_the_cluster_do_not_control_the_terminal(control_plane: Any, place: Place) -> None:
    await spoil(place)
    options = ["--kubeconfig", str(control_plane.kubeconfig), "-n", place.namespace]
    for words in (*SHOWN_BY, *OTHERS):
        done = {}
        for output in ("text", "json", "yaml"):
            arguments = [*words, *options, "-o", output]
            done[output] = await asyncio.to_thread(CliRunner().invoke, poolhouse, arguments, color=True)
            error = done[output].exception
            assert error is None or isinstance(error, SystemExit), (words, output, error)
            assert not has_controls(OURS.sub("", done[output].output)), (words, output)
        if words in SHOWN_BY:
            assert SHOWN in done["text"].stdout, words
            assert any(EVIL in text for text in texts(json.loads(done["json"].stdout))), words
            assert any(EVIL in text for text in texts(yaml.safe_load(done["yaml"].stdout))), words


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from texts(inner)
