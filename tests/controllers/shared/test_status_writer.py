"""When a status is written, and with what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from controllers.shared.decisions import decision
from controllers.shared.status_writer import PRUNED_SECONDS, LastWrite, StatusUpdate, StatusWriter, status_patch
from poolhouse.api.kinds.replicaset import ReplicaSetStatus
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import VMIS


@dataclass(frozen=True)
class View:
    namespace: str = "default"
    name: str = "web"
    uid: str = "u-web"
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class FakeApi:
    def __init__(self, gone: bool = False, drops: tuple[str, ...] = ()) -> None:
        self.patches: list[list[dict[str, Any]]] = []
        self.gone, self.drops = gone, drops

    async def patch(
        self, resource: Any, namespace: str, name: str, change: list[dict[str, Any]], *, kind: str, subresource: str
    ) -> dict[str, Any]:
        assert (namespace, name, kind, subresource) == ("default", "web", "json", "status")
        if self.gone:
            raise NotFound("gone", status=404)
        self.patches.append(change)
        status = {name: value for name, value in change[-1]["value"].items() if name not in self.drops}
        return {"metadata": {"resourceVersion": f"after-{len(self.patches)}"}, "status": status}


async def test_a_status_is_written_when_it_changes_and_once_a_second() -> None:
    api, now, last = FakeApi(), 10.0, LastWrite()
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: now)
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate()
    assert await writer.update(View(), ReplicaSetStatus(replicas=1), last) == StatusUpdate(written=True)
    now = 10.25
    assert await writer.update(View(), ReplicaSetStatus(replicas=2), last) == StatusUpdate(wait_seconds=0.75)
    now = 11.0
    assert await writer.update(View(), ReplicaSetStatus(replicas=2), last) == StatusUpdate(written=True)
    assert [each[-1]["value"]["replicas"] for each in api.patches] == [1, 2]
    assert list(last.versions) == ["after-1", "after-2"]


async def test_a_status_that_something_waits_for_is_written_sooner() -> None:
    api, now, last = FakeApi(), 10.0, LastWrite()
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: now)
    await writer.update(View(), ReplicaSetStatus(replicas=1), last)
    now = 10.25
    found = await writer.update(View(), ReplicaSetStatus(replicas=2), last, interval_seconds=0.5)
    assert found == StatusUpdate(wait_seconds=0.25)
    found = await writer.update(View(), ReplicaSetStatus(replicas=2), last, interval_seconds=0.25)
    assert found == StatusUpdate(written=True)


async def test_a_status_that_an_old_crd_cuts_is_written_again_later(caplog: pytest.LogCaptureFixture) -> None:
    """Else a pool has no conditions for ever after somebody has applied an older CRD and the right one again."""
    api, last = FakeApi(drops=("replicas",)), LastWrite()
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: 10.0)
    found = await writer.update(View(), ReplicaSetStatus(replicas=1), last)
    assert found == StatusUpdate(written=True, wait_seconds=PRUNED_SECONDS)
    assert "default/web: the CRD of another release drops status.replicas" in caplog.text


async def test_the_status_of_a_deleted_object_is_not_an_error() -> None:
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(FakeApi(gone=True), VMIS, lambda: 0.0)
    assert await writer.update(View(), ReplicaSetStatus(replicas=1), LastWrite()) == StatusUpdate(written=True)


def test_a_patch_names_the_object_and_its_version() -> None:
    patch = status_patch(ReplicaSetStatus(replicas=1), uid="u-web", resource_version="7")
    assert patch[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u-web"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    assert status_patch(ReplicaSetStatus(replicas=1)) == patch[2:]


def test_a_patch_replaces_the_whole_status() -> None:
    """A merge would keep the fields that the patch does not name, at any depth."""
    (patch,) = status_patch(ReplicaSetStatus(replicas=1))
    assert (patch["op"], patch["path"]) == ("add", "/status")
    assert patch["value"]["replicas"] == 1
    assert "observedGeneration" not in patch["value"]


async def test_new_decisions_are_written_once_also_without_another_change() -> None:
    api, now, last = FakeApi(), 10.0, LastWrite()
    first, second = (decision(f"2026-03-01T12:00:0{n}Z", "SuccessfulDelete", "excess", f"web-{n}/a") for n in (1, 2))
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: now)
    last.record([first])
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate(written=True)
    assert api.patches[0][-1]["value"]["decisions"] == [first.json()]
    now = 20.0
    # The log does not have it: the store is behind, another leader has overwritten it, or the log is full.
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate()
    last.record([second])
    stored = ReplicaSetStatus(decisions=(second,))
    assert await writer.update(View(status=stored), stored, last) == StatusUpdate(), "another leader has written it"
    assert len(api.patches) == 1


async def test_new_decisions_wait_for_the_interval() -> None:
    api, now, last = FakeApi(), 10.0, LastWrite(at=9.5)
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: now)
    last.record([decision("2026-03-01T12:00:00Z", "SuccessfulDelete", "excess", "web-1/a")])
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate(wait_seconds=0.5)
    now = 10.5
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate(written=True)
    assert await writer.update(View(), ReplicaSetStatus(), last) == StatusUpdate()


async def test_a_stale_view_loses_no_decision() -> None:
    api, last = FakeApi(), LastWrite()
    first, second = (decision(f"2026-03-01T12:00:0{n}Z", "SuccessfulDelete", "excess", f"web-{n}/a") for n in (1, 2))
    writer: StatusWriter[ReplicaSetStatus] = StatusWriter(api, VMIS, lambda: 0.0, interval_seconds=0)
    last.record([first])
    await writer.update(View(), ReplicaSetStatus(replicas=1), last)
    last.record([second])
    await writer.update(View(), ReplicaSetStatus(replicas=2), last)
    assert api.patches[1][-1]["value"]["decisions"] == [first.json(), second.json()]
    stored = ReplicaSetStatus(replicas=2, decisions=(first, second))
    await writer.update(View(status=stored), stored, last)
    assert last.decisions == []
