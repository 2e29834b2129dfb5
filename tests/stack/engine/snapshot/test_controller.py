"""The writes that let the VM of a snapshot go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from poolhouse.runtime.errors import Conflict
from poolhouse.runtime.resource import Resource
from poolhouse.stack.engine.objects import VM
from poolhouse.stack.engine.resources import SNAPSHOT_SOURCE_FINALIZER, VM_FINALIZER
from poolhouse.stack.engine.snapshot.controller import unlock
from tests.stack.engine.builders import vm


class FakeApi:
    """Stores one VM, which another client changes before the second write."""

    def __init__(self, stored: VM) -> None:
        self.stored, self.writes = stored, 0

    async def patch(self, resource: Resource, namespace: str, name: str, body: Any, **_: Any) -> Any:
        self.writes += 1
        if self.writes == 2:
            raise Conflict("the VM has changed", status=409)
        status = {key: value for key, value in {**self.stored.status, **body.get("status", {})}.items() if value}
        finalizers = tuple(body["metadata"].get("finalizers", self.stored.finalizers))
        self.stored = replace(self.stored, status=status, finalizers=finalizers)
        return {"metadata": {"resourceVersion": self.stored.resource_version}}


async def test_a_conflict_between_the_writes_leaves_no_finalizer() -> None:
    api = FakeApi(vm(finalizers=(VM_FINALIZER, SNAPSHOT_SOURCE_FINALIZER), status={"snapshotInProgress": "snap"}))
    with pytest.raises(Conflict):
        await unlock(api, api.stored)
    assert api.stored.status == {"snapshotInProgress": "snap"}, "the plan unlocks the VM as long as it says so"
    await unlock(api, api.stored)
    assert (api.stored.status, api.stored.finalizers) == ({}, (VM_FINALIZER,))
