"""How a behaviour is read, and what the command prints about a cluster that differs."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt.behaviours import BEHAVIOURS
from poolhouse.api.kubevirt.behaviours.steps import (
    ANY,
    Behaviour,
    Call,
    Change,
    Create,
    Reaches,
    Refusal,
    Shows,
    Step,
)
from poolhouse.cli.conformance import check
from poolhouse.cli.trial import LABELS, Result, Trial, merged, read
from poolhouse.runtime.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable

Json = dict[str, Any]


class FakeApi:
    """A cluster with one VM, which answers as it is told."""

    def __init__(self, vm: Json | None = None, *, answer: Any = (202, b""), error: Exception | None = None) -> None:
        self.vm, self.answer, self.error = vm, answer, error
        self.created: list[Json] = []
        self.deleted: list[str] = []

    async def get(self, resource: Any, namespace: str, name: str) -> Json:
        if self.vm is None:
            raise NotFound("gone", status=404)
        return self.vm

    async def list(self, resource: Any, namespace: Any) -> Any:
        return [{"metadata": {"name": "kubevirt"}, "status": {"observedKubeVirtVersion": "v1.6.2"}}], "1"

    async def create(self, resource: Any, document: Json) -> Json:
        self.created.append(document)
        if self.error is not None:
            raise self.error
        return document

    async def patch(self, *_: Any) -> None:
        if self.error is not None:
            raise self.error

    async def respond(self, method: str, path: str, **_: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer

    async def request(self, method: str, path: str, **_: Any) -> Json:
        if method == "DELETE":
            self.deleted.append(path)
        elif self.error is not None:
            raise self.error
        return {}

    async def delete(self, resource: Any, namespace: str, name: str, **_: Any) -> None:
        self.deleted.append(f"{resource.kind} {name}")


async def outcome(api: FakeApi, *steps: Step) -> Result:
    behaviour = Behaviour("b", "what", "why", steps)
    return await Trial(api, "ns", "conformance-0", 0.01).run(behaviour)


REFUSED = Refusal(409, 'virtualmachine.kubevirt.io "%s": VM is not running')
CONFLICT = Conflict('virtualmachine.kubevirt.io "conformance-0": VM is not running', status=409)


@pytest.mark.parametrize(
    ("api", "step", "message"),
    [
        pytest.param(FakeApi(), Create(), "", id="accepted"),
        pytest.param(FakeApi(error=CONFLICT), Call("VM", "stop", refused=REFUSED), "", id="refused as expected"),
        pytest.param(
            FakeApi(error=CONFLICT), Create(), "step 1 of 1, create the VM: 409: virtualmachine", id="refused"
        ),
        pytest.param(
            FakeApi(), Call("VM", "stop", refused=REFUSED), "but the request was accepted", id="accepted, wrongly"
        ),
        pytest.param(
            FakeApi(error=Conflict("another reason", status=409)),
            Change("VM", {}, REFUSED),
            "got 409 'another reason'",
            id="another refusal",
        ),
        pytest.param(
            FakeApi(answer=(200, b"{}")), Call("VM", "start"), "expected 202 without a body, got 200 '{}'", id="a body"
        ),
        pytest.param(
            FakeApi({"status": {"printableStatus": "Unknown"}}),
            Reaches("Running", ("Starting",)),
            "wait for Running: expected Starting or Running, got Unknown",
            id="an unexpected state",
        ),
        pytest.param(
            FakeApi({"status": {"printableStatus": "Starting"}}),
            Reaches("Running", ("Starting",)),
            "expected Running, got Starting after 0.01 s",
            id="a state that does not come",
        ),
        pytest.param(
            FakeApi({"status": {"phase": "Failed"}}),
            Shows("VMI", {"status.phase": "Running", "metadata": None}),
            'expected status.phase "Running", got status.phase "Failed"',
            id="another value",
        ),
        pytest.param(
            FakeApi({"status": {"phase": "Running"}}), Shows("VMI", {"status.phase": ANY}), "", id="any value"
        ),
    ],
)
async def test_steps(api: FakeApi, step: Step, message: str) -> None:
    result = await outcome(api, step)
    assert result.outcome == ("differs" if message else "ok"), result.message
    assert message in result.message
    assert api.deleted == ["VirtualMachine conformance-0", "VirtualMachineInstance conformance-0"]


async def test_vms_are_left_alone_by_poolhouse_and_the_namespace_is_deleted() -> None:
    api = FakeApi()
    behaviours = [
        Behaviour("a", "", "", (Create({"runStrategy": "Halted"}),)),
        Behaviour("b", "", "", (), since=(1, 9)),
    ]
    version, results = await check(api, behaviours, 1)
    assert version == "v1.6.2"
    assert [(each.outcome, each.message) for each in results] == [
        ("ok", ""),
        ("skipped", "it exists since KubeVirt 1.9"),
    ]
    assert api.created[0]["metadata"]["labels"] == LABELS
    assert api.deleted[-1].startswith("/api/v1/namespaces/poolhouse-conformance-")


async def test_a_cluster_that_does_not_answer_is_an_error_and_no_difference() -> None:
    api = FakeApi(error=Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await check(api, [Behaviour("a", "", "", (Create(),))], 1)
    assert api.deleted[-1].startswith("/api/v1/namespaces/poolhouse-conformance-")


@pytest.mark.parametrize(
    ("error", "deletions"),
    [
        pytest.param(Forbidden("no", status=403), 0, id="the API server refused it"),
        pytest.param(Unreachable("no answer"), 1, id="the answer is lost"),
    ],
)
async def test_a_namespace_is_deleted_only_if_it_may_have_been_created(error: ApiError, deletions: int) -> None:
    api = FakeApi(error=error)
    with pytest.raises(type(error)):
        await check(api, (), 0.01)
    assert len(api.deleted) == deletions


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.labels.kubevirt.io/nodeName", "node-1"),
        ("metadata.finalizers.0", "f"),
        ("metadata.finalizers.1", None),
        ("conditions.Ready", "False/VMINotExists"),
        ("conditions.Paused", None),
        ("status.none.at.all", None),
    ],
)
def test_paths(path: str, value: Any) -> None:
    condition = {"type": "Ready", "status": "False", "reason": "VMINotExists"}
    metadata = {"labels": {"kubevirt.io/nodeName": "node-1"}, "finalizers": ["f"]}
    assert read({"metadata": metadata, "status": {"conditions": [condition]}}, path) == value


def test_null_removes_a_field() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "d": None}) == {"a": {"c": 2}}


def test_behaviours_have_unique_names_and_reasons() -> None:
    assert len({each.name for each in BEHAVIOURS}) == len(BEHAVIOURS)
    assert all(each.what and each.why.endswith(".") for each in BEHAVIOURS)
