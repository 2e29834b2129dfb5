"""Which requests are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webhook.builders import disk, request, vm
from webhook.scope import skip_reason

VM = vm(disk())
MORE = vm(disk(), disk("data"))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(request(VM), None, id="a creation is looked at"),
        pytest.param(request(MORE, VM), None, id="a changed spec is looked at"),
        pytest.param(request(None, VM, operation="DELETE"), "delete changes no spec", id="a deletion"),
        pytest.param(request(VM, operation="CONNECT"), "connect changes no spec", id="a console"),
        pytest.param(request(MORE, VM, subresource="status"), "status is not the spec", id="a status"),
        pytest.param(
            request({**VM, "status": {"ready": True}}, VM), "stays as it is", id="a status in the main object"
        ),
        pytest.param(
            request(vm(disk(), meta={"finalizers": []}), vm(disk(), meta={"finalizers": ["x"]})),
            "stays as it is",
            id="a finalizer taken off",
        ),
        pytest.param(
            request(vm(disk("other"), meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), VM),
            "being deleted",
            id="anything that is being deleted",
        ),
    ],
)
def test_what_changes_no_spec_is_left_alone(asked: Any, why: str | None) -> None:
    found = skip_reason(asked)
    assert found is None if why is None else (found is not None and why in found)
