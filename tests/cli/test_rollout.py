"""Progress of a rollout, and differences between revisions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controllers.shared.readiness import Readiness, State
from poolhouse.api.kinds import meta
from poolhouse.api.kubevirt.meaning import VM_TEMPLATE
from poolhouse.cli.cluster import Cluster
from poolhouse.cli.differences import differences, summarize_changes
from poolhouse.cli.main import poolhouse
from poolhouse.cli.output import Failed
from poolhouse.cli.resources import POOLS
from poolhouse.cli.undo import _previous, fields_to_restore
from poolhouse.cli.updates import abort_update, is_observed, next_commands, progress, step_to_end
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import CONTROLLER_REVISIONS
from tests.runtime.faulty_server import Server

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def progressing(status: str, reason: str, message: str, state: State = "Reconciling") -> list[dict[str, Any]]:
    """The condition Progressing, and those of an object in this state."""
    decided = [each.json() for each in Readiness(state, reason, message).conditions]
    return [{"type": "Progressing", "status": status, "reason": reason, "message": message}, *decided]


COMPLETE = progressing("True", "Complete", "all VMs are as the spec requires", "Ready")


def pool(replicas: int = 3, *, generation: int = 2, paused: bool = False, **status: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), replicas)
    return {
        "metadata": {"name": "web", "generation": generation},
        "spec": {"replicas": replicas, "paused": paused, "progressDeadlineSeconds": 600},
        "status": {"observedGeneration": 2, "conditions": COMPLETE, **numbers, **status},
    }


STUCK = progressing("False", "ProgressDeadlineExceeded", "no progress", "Stalled")
INVALID = progressing("False", "InvalidSpec", "spec.maxUnavailable: what is that", "Stalled")
REFUSED = progressing("False", "FailedCreate", "Create web-3: 503: away")
LATE = progressing("False", "FailedCreate", "Create web-3: 503: away", "Stalled")
SHARED = progressing("False", "DiskConflict", "dataVolumeTemplate root is also pool db's", "Stalled")
PAUSED = progressing("False", "PoolPaused", "spec.paused is true", "Waiting")
SETTLED = progressing("False", "PoolPaused", "spec.paused is true", "Ready")
GOING = progressing("True", "UpdatingVMs", "1 of 3 VMs has the template, 3 are available")


@pytest.mark.parametrize(
    ("document", "state", "words"),
    [
        pytest.param(pool(), "Complete", "all 3 VMs", id="complete"),
        pytest.param(pool(generation=3), "Progressing", "not observed the change", id="change not observed"),
        pytest.param({**pool(), "status": {}}, "Progressing", "not observed the change", id="new pool"),
        pytest.param(pool(conditions=PAUSED, paused=True), "Progressing", "paused", id="a paused pool is not done"),
        pytest.param(pool(conditions=SETTLED, paused=True), "Complete", "all 3 VMs", id="a paused pool may be done"),
        pytest.param(
            pool(conditions=GOING), "Progressing", "web: 1 of 3 VMs has the template", id="in the controller's numbers"
        ),
        pytest.param(pool(4), "Complete", "all 4", id="as many as are wanted"),
        pytest.param(pool(1), "Complete", "web: its VM has the template, and is ready", id="one"),
        pytest.param(pool(1, readyReplicas=0), "Complete", "and is not ready", id="one halted VM"),
        pytest.param(pool(0), "Complete", "web: spec.replicas is 0, and it has no VMs", id="none"),
        pytest.param(pool(conditions=STUCK, updatedReplicas=1), "Failed", "no progress", id="deadline exceeded"),
        pytest.param(pool(conditions=INVALID), "Failed", "what is that", id="invalid spec"),
        pytest.param(
            pool(conditions=REFUSED, updatedReplicas=1),
            "Progressing",
            "FailedCreate: Create web-3: 503",
            id="retried",
        ),
        pytest.param(
            pool(conditions=LATE, updatedReplicas=1),
            "Failed",
            "FailedCreate: Create web-3: 503",
            id="retried until the deadline",
        ),
        pytest.param(pool(conditions=SHARED), "Failed", "is also pool db's", id="disk conflict"),
    ],
)
def test_progress(document: dict[str, Any], state: str, words: str) -> None:
    found, said = progress(document)
    assert (found, words in said) == (state, True), said


LOST_RIGHT = {
    "type": "ReferencesRefused",
    "status": "True",
    "reason": "ReferencesRefused",
    "message": "disk root: anna may not get it",
}


@pytest.mark.parametrize("conditions", [COMPLETE, GOING], ids=["complete", "in progress"])
def test_progress_says_that_an_update_leaves_an_image_out(conditions: list[Any]) -> None:
    assert "anna may not get it" not in progress(pool(conditions=conditions))[1]
    said = progress(pool(conditions=[*conditions, LOST_RIGHT]))[1]
    assert said.count("ReferencesRefused: disk root: anna may not get it") == 1


STEPPED = {"proactive": {"steps": [{"setReplicas": 1}, {"pause": {}}, {"setReplicas": 2}]}}
ABORTED = {"revision": "web-b", "aborted": {"reason": "Aborted", "message": "a user", "time": ago(60)}}


def requested(steps: Any = None, *, status: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    """A pool that is updated from revision web-a to web-b, with annotations of a user."""
    document = pool(**{"updateRevision": "web-b", "currentRevision": "web-a", **(status or {})})
    document["metadata"]["annotations"] = {f"poolhouse.dev/{name}": value for name, value in annotations.items()}
    document["spec"]["updateStrategy"] = STEPPED if steps is None else steps
    return document


def step(done: int) -> dict[str, Any]:
    return {"update": {"revision": "web-b", "stepsDone": done}}


@pytest.mark.parametrize(
    ("document", "observed"),
    [
        pytest.param(requested(), True, id="no request"),
        pytest.param(requested(status=step(1), promote="web-b=2"), False, id="a promotion that is not in the status"),
        pytest.param(requested(status=step(2), promote="web-b=2"), True, id="a promotion that is in the status"),
        pytest.param(requested(status=step(1), promote="web-a=2"), True, id="a promotion of another update"),
        pytest.param(requested(status=step(2), promote="web-b=all"), False, id="a promotion past all steps"),
        pytest.param(requested(status=step(3), promote="web-b=all"), True, id="past all steps"),
        pytest.param(requested({}, status=step(0), promote="web-b=all"), True, id="the steps were removed"),
        pytest.param(requested(abort="web-b"), False, id="an abort that is not in the status"),
        pytest.param(requested(status={"update": ABORTED}, abort="web-b"), True, id="an abort that is in the status"),
        pytest.param(requested(status={"currentRevision": "web-b"}, abort="web-b"), True, id="nothing to abort"),
        pytest.param(requested(abort="web-a"), True, id="an abort of another update"),
        pytest.param(
            requested(status={"update": ABORTED}, retry=ago(60)), False, id="a retry that is not in the status"
        ),
        pytest.param(requested(status={"update": ABORTED}, retry=ago(90)), True, id="the retry of an earlier abort"),
        pytest.param(requested(status=step(0), retry=ago(60)), True, id="a retry that is in the status"),
        pytest.param(
            requested({"proactive": 1}, status={**step(0), "conditions": INVALID}, promote="web-b=1"),
            True,
            id="an invalid spec answers no request",
        ),
    ],
)
def test_a_request_in_an_annotation_is_observed_when_the_status_has_the_answer(
    document: dict[str, Any], observed: bool
) -> None:
    assert is_observed(document) is observed
    assert ("not observed the change" in progress(document)[1]) is not observed


WAITS = progressing("True", "UpdatePaused", "1 of 3 VMs has the template; step 2 of 3: the update is paused")
UNDECIDED = progressing("True", "AnalysisInconclusive", "step 2 of 3: no result")
ANALYSES = progressing("True", "AnalysisRunning", "step 2 of 3: latency")


@pytest.mark.parametrize(
    ("document", "waits"),
    [
        pytest.param(pool(conditions=WAITS, update={"stepsDone": 1}), True, id="a pause"),
        pytest.param(pool(conditions=UNDECIDED, update={"stepsDone": 1}), True, id="an analysis that does not decide"),
        pytest.param(pool(conditions=ANALYSES, update={"stepsDone": 1}), False, id="an analysis that goes on"),
        pytest.param(pool(conditions=GOING), False, id="an update that goes on"),
        pytest.param(pool(conditions=WAITS, paused=True), False, id="a paused pool: its message names resume"),
        pytest.param(pool(conditions=WAITS, generation=3), False, id="a change that is not observed"),
        pytest.param({**pool(), "status": {}}, False, id="a new pool"),
    ],
)
def test_an_update_that_waits_at_a_step_names_the_commands(document: dict[str, Any], waits: bool) -> None:
    said = (
        "web: it waits at step 2: `poolhouse rollout promote web` goes on, "
        "`poolhouse rollout undo web` returns to the former template"
    )
    assert next_commands(document) == (said if waits else "")


@pytest.mark.parametrize(
    ("done", "step", "last"),
    [
        pytest.param(0, None, 1, id="the present step"),
        pytest.param(0, 2, 2, id="a step that the controller has not stored yet ends with those before it"),
        pytest.param(1, 2, 2, id="the step that the user sees"),
        pytest.param(2, 2, "step 2 of 4 is over: the update is at step 3", id="a step that is over ends no other"),
        pytest.param(1, 5, "the update has 4 steps, not 5", id="no such step"),
    ],
)
def test_a_promotion_ends_the_step_that_the_user_names(done: int, step: int | None, last: int | str) -> None:
    if isinstance(last, int):
        assert step_to_end(4, done, step) == last
    else:
        with pytest.raises(Failed) as refused:
            step_to_end(4, done, step)
        assert refused.value.message == last


def test_scale_in_progresses_until_all_vms_are_deleted() -> None:
    deletes = progressing("True", "ScalingVMs", "2 VMs are still to be deleted")
    assert progress(pool(3, conditions=deletes)) == ("Progressing", "web: 2 VMs are still to be deleted")


@pytest.mark.parametrize(
    ("changes", "said"), [([], ""), (["a", "b"], "a; b"), (["a", "b", "c", "d"], "a; b; and 2 more")]
)
def test_a_table_shows_the_first_changes(changes: list[str], said: str) -> None:
    assert summarize_changes(changes) == said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1}}, [], id="nothing differs"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 -> 2"], id="as deep as both go"),
        pytest.param({"a": 1}, {}, ["a: 1 -> nothing"], id="something went"),
        pytest.param({}, {"a": {"b": 1}}, ['a: nothing -> {"b": 1}'], id="something came"),
        pytest.param(
            {"disks": [{"name": "x", "bus": "sata"}, {"name": "y"}]},
            {"disks": [{"name": "y"}, {"name": "x", "bus": "virtio"}]},
            ["disks[x].bus: sata -> virtio"],
            id="entries are told apart by name, whatever their order",
        ),
        pytest.param(
            {"templates": [{"metadata": {"name": "root"}, "size": 1}]},
            {"templates": [{"metadata": {"name": "root"}, "size": 2}]},
            ["templates[root].size: 1 -> 2"],
            id="names may be in metadata",
        ),
        pytest.param({"l": [1, 2]}, {"l": [1, 3]}, ["l: [1, 2] -> [1, 3]"], id="a list without names is one value"),
    ],
)
def test_changes(before: Any, after: Any, said: list[str]) -> None:
    assert list(differences(before, after)) == said


def test_a_change_leaves_out_what_a_vm_without_a_preference_need_not_say() -> None:
    before: dict[str, Any] = {"spec": {"template": {"spec": {"domain": {"devices": {}}}}}}
    devices = {"autoattachMemBalloon": True, "rng": {}}
    after: dict[str, Any] = {"spec": {"template": {"spec": {"domain": {"devices": devices}}}}}
    assert list(differences(before, after, VM_TEMPLATE)) == ["spec.template.spec.domain.devices.rng: nothing -> {}"]
    before["spec"]["preference"] = after["spec"]["preference"] = {"name": "a"}
    assert len(list(differences(before, after, VM_TEMPLATE))) == 2


def test_long_values_are_cut() -> None:
    (line,) = differences({"a": ""}, {"a": "x" * 500})
    assert len(line) < 80


def pool_at(reason: str, updated: int, message: str) -> dict[str, Any]:
    state: State = "Ready" if reason == "Complete" else "Waiting" if reason == "UpdatePaused" else "Reconciling"
    return {
        "metadata": {"name": "web", "generation": 1},
        "spec": {"replicas": 4},
        "status": {
            "observedGeneration": 1,
            "replicas": 4,
            "updatedReplicas": updated,
            "availableReplicas": 4,
            "conditions": progressing("True", reason, message, state),
        },
    }


@pytest.mark.parametrize(
    ("reason", "state", "message"),
    [
        pytest.param("UpdatePaused", "Progressing", "web: why", id="a pause is not the end"),
        pytest.param("Complete", "Complete", "web: why", id="a partition is"),
        pytest.param("UpdatingVMs", "Progressing", "web: why", id="on the way"),
    ],
)
def test_an_update_by_steps(reason: str, state: str, message: str) -> None:
    assert progress(pool_at(reason, 1, "why")) == (state, message)


async def test_the_timeout_ends_a_request_without_an_answer(tmp_path: Path) -> None:
    async with Server() as server:
        await (await server.connect(tmp_path)).close()
        arguments = ["rollout", "status", "web", "--timeout", "1s", "--kubeconfig", str(tmp_path / "kubeconfig")]
        result = await asyncio.to_thread(CliRunner().invoke, poolhouse, arguments)
    assert (result.exit_code, result.stderr) == (3, "Error: no answer of the API server within 1 s\n")


@pytest.mark.parametrize("reason", ["UpdatePaused", "AnalysisRunning", "AnalysisInconclusive"])
def test_an_update_that_waits_is_not_complete(reason: str) -> None:
    waiting = pool(conditions=progressing("True", reason, "step 2 of 2"))
    assert progress(waiting) == ("Progressing", "web: step 2 of 2")


@pytest.mark.parametrize(
    ("current", "outcomes", "chosen"),
    [
        pytest.param("web-3", {}, "web-2", id="the one before"),
        pytest.param("web-1", {"web-2": "Superseded"}, "web-1", id="the last that all VMs had"),
        pytest.param("web-3", {"web-2": "RolledBack", "web-1": "Complete"}, "web-1", id="not one that failed"),
        pytest.param("web-3", {"web-1": "Complete", "web-2": "Superseded"}, "web-1", id="not one that VMs never had"),
        pytest.param("web-3", {"web-2": "Aborted", "web-1": "RolledBack"}, "web-2", id="the last, if all have failed"),
        pytest.param("web-3", {"web-2": "Complete", "web-1": "Complete"}, "web-1", id="the last in time"),
    ],
)
def test_undo_chooses_a_revision(
    monkeypatch: pytest.MonkeyPatch, current: str, outcomes: dict[str, str], chosen: str
) -> None:
    monkeypatch.setattr("poolhouse.cli.undo.current_revision", lambda document, revisions: "web-3")
    document = pool(currentRevision=current, history=[{"revision": r, "outcome": o} for r, o in outcomes.items()])
    revisions = [{"metadata": {"name": f"web-{n}"}} for n in (1, 2, 3)]
    assert _previous(document, revisions)["metadata"]["name"] == chosen


def test_a_second_undo_does_not_apply_what_the_first_has_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolhouse.cli.undo.current_revision", lambda document, revisions: "web-1")
    document = pool(currentRevision="web-1", history=[{"revision": "web-2", "outcome": "Superseded"}])
    with pytest.raises(Failed, match=r"no other template was on all VMs of web; .* --to-revision chooses one"):
        _previous(document, [{"metadata": {"name": "web-1"}}, {"metadata": {"name": "web-2"}}])


ROOT = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "debian"}}}
IMAGE = {"pvc": {"namespace": "images", "name": "debian-1"}}


@pytest.mark.parametrize(
    ("spec", "sources", "expected"),
    [
        pytest.param({"dataVolumeTemplates": [ROOT]}, {"root": IMAGE}, {"source": IMAGE}, id="only the image differs"),
        pytest.param({"dataVolumeTemplates": []}, {"root": IMAGE}, ROOT["spec"], id="the template differs too"),
        pytest.param({"dataVolumeTemplates": [ROOT]}, {}, ROOT["spec"], id="no DataSource is tracked"),
    ],
)
def test_an_undone_image_is_named_in_the_template(spec: Any, sources: Any, expected: Any) -> None:
    data = {"nameGeneration": {}, "template": {"spec": {"dataVolumeTemplates": [ROOT]}}}
    revision = {"data": {**data, **({"dataSources": sources} if sources else {})}}
    fields, pins = fields_to_restore(revision, {"metadata": {"namespace": "ns"}, "spec": {"template": {"spec": spec}}})
    assert fields["template"]["spec"]["dataVolumeTemplates"][0]["spec"] == expected
    assert pins == (expected == {"source": IMAGE})
    assert "sourceRef" in ROOT["spec"], "the revision stays"


class Updating:
    """An API server with a pool that is being updated from web-1 to web-2."""

    def __init__(self, revision_error: Exception | None) -> None:
        self._revision_error = revision_error
        self.annotated: list[Any] = []

    async def get(self, resource: Any, _namespace: str, name: str) -> dict[str, Any]:
        if resource is POOLS:
            document = pool(updateRevision="web-2", currentRevision="web-1")
            document["metadata"]["resourceVersion"] = "7"
            return document
        assert (resource, name) == (CONTROLLER_REVISIONS, "web-1")
        if self._revision_error:
            raise self._revision_error
        return {}

    async def patch(self, _resource: Any, _namespace: str, _name: str, change: dict[str, Any]) -> None:
        self.annotated.append(change["metadata"]["annotations"][meta.ABORT])


@pytest.mark.parametrize("error", [None, Forbidden("you may not read revisions")])
async def test_an_update_is_aborted(error: Exception | None) -> None:
    api = Updating(error)
    await abort_update(api, Cluster(None, "default"), "web")
    assert api.annotated == ["web-2"]


async def test_no_update_is_aborted_whose_former_revision_is_not_stored() -> None:
    api = Updating(NotFound("web-1 not found"))
    with pytest.raises(Failed, match="web-1 is not stored any more; choose one of `rollout history web`"):
        await abort_update(api, Cluster(None, "default"), "web")
    assert api.annotated == []
