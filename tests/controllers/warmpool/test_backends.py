"""Changes that the state of a VM allows, and what the backends do after an error."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controllers.shared.subresources import Subresources
from controllers.warmpool.backends import (
    Change,
    CreateRequest,
    InvalidTransition,
    OutcomeUnknown,
    RoutingBackend,
    check_transition,
)
from controllers.warmpool.ec2.tags import is_instance
from controllers.warmpool.vm_backend import VMBackend
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.warm_states import WarmState
from poolhouse.runtime.errors import ApiError, Forbidden, Unreachable
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm
from tests.controllers.warmpool.test_ssh_keys import template


@pytest.mark.parametrize(
    ("vm", "wanted", "fine"),
    [
        pytest.param(a_vm("a"), Change(WarmState.ALLOCATING, claim_uid="c"), True, id="a claim gets a Ready VM"),
        pytest.param(a_vm("a", WarmState.IN_USE), Change(claim_uid="other"), False, id="no second claim"),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING),
            Change(WarmState.READY, claim_uid=""),
            True,
            id="returned before activation",
        ),
        pytest.param(
            a_vm("a", WarmState.ALLOCATING, activated=True),
            Change(WarmState.READY, claim_uid=""),
            False,
            id="not returned after activation",
        ),
        pytest.param(a_vm("a", WarmState.ALLOCATING), Change(WarmState.READY), False, id="not returned with its claim"),
        pytest.param(
            a_vm("a", WarmState.IN_USE), Change(WarmState.READY, claim_uid=""), False, id="InUse never becomes Ready"
        ),
        pytest.param(a_vm("a", None), Change(WarmState.READY), False, id="no state"),
        pytest.param(a_vm("a"), Change(labels={"x": "y"}), True, id="labels only"),
    ],
)
def test_allowed_transitions(vm: WarmVM, wanted: Change, fine: bool) -> None:
    if fine:
        check_transition(vm, wanted)
    else:
        with pytest.raises(InvalidTransition):
            check_transition(vm, wanted)


class NoSecrets:
    """An API server that creates VMs, and answers with an error to the creation of Secrets."""

    def __init__(self, error: ApiError) -> None:
        self.error, self.deleted = error, list[str]()

    async def __call__(self, documents: list[Any]) -> list[Any]:
        return documents

    async def create(self, *given: Any) -> Any:
        if len(given) == 1:
            return given[0]
        raise self.error

    async def delete(self, resource: Any, namespace: str, name: str, **options: Any) -> None:
        self.deleted.append(name)


@pytest.mark.parametrize(
    ("error", "raised", "deleted"),
    [
        pytest.param(Forbidden("no"), Forbidden, ["web-a"], id="a VM whose Secret is refused is deleted"),
        pytest.param(Unreachable("lost"), OutcomeUnknown, [], id="a VM whose Secret may exist stays"),
    ],
)
async def test_a_vm_needs_its_secret(error: ApiError, raised: type[Exception], deleted: list[str]) -> None:
    server, pool = NoSecrets(error), a_pool(template=template(meta.CLAIM_KEY))
    backend = VMBackend(server, server, Subresources(server, lambda: 0.0), lambda: NOW)
    with pytest.raises(raised):
        await backend.create(CreateRequest("ns", "web-a", "web", pool.uid, pool.owner, pool.template, "hash"))
    assert server.deleted == deleted


@pytest.mark.sentence("5.72")
async def test_a_deletion_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = NoSecrets(Forbidden("no"))
    backend = VMBackend(server, server, Subresources(server, lambda: 0.0), lambda: NOW)
    assert await backend.terminate(a_vm("a"), "one too many")
    (line,) = [each for each in caplog.records if getattr(each, "event", "") == "VMDeleting"]
    assert (line.getMessage(), line.__dict__["pool"]) == ("deleted web-a: one too many", "web")


class Named:
    """A backend whose answers tell its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def create(self, request: CreateRequest) -> str:
        return self._name

    async def find(self, namespace: str, claim_uid: str) -> list[str]:
        return [self._name]

    async def read(self, vm: WarmVM) -> str:
        return self._name

    async def watch_application(self, vm: WarmVM) -> AsyncIterator[str]:
        yield self._name


@pytest.mark.parametrize(("uid", "backend"), [("i-0123", "instances"), ("u-web-a", "vms")])
async def test_the_vm_or_the_request_decides_which_backend_is_asked(uid: str, backend: str) -> None:
    routing: Any = RoutingBackend(Named("vms"), Named("instances"), is_instance)
    vm, pool = a_vm("a", uid=uid), a_pool()
    assert await routing.read(vm) == backend
    assert [each async for each in routing.watch_application(vm)] == [backend]
    assert await routing.find("ns", "c") == ["vms", "instances"]
    template = {"spec": {}} if backend == "vms" else {"imageId": "ami-1"}
    assert await routing.create(CreateRequest("ns", "web-a", "web", pool.uid, pool.owner, template, "hash")) == backend
