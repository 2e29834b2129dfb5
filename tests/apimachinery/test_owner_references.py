from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.apimachinery.owner_references import controller_of, controller_reference

REFERENCE = controller_reference("kubevirt.io/v1", "VirtualMachinePool", "web", "1-2-3")


@pytest.mark.parametrize(
    ("owners", "found"),
    [
        pytest.param([{"uid": "other"}, REFERENCE], REFERENCE, id="the controller among other owners"),
        pytest.param([{"uid": "other"}], None, id="an owner that is not the controller"),
        pytest.param([], None, id="no owner"),
        pytest.param(None, None, id="null"),
        pytest.param("text", None, id="not a list"),
    ],
)
def test_the_controller_is_found(owners: Any, found: Any) -> None:
    assert controller_of({"metadata": {"ownerReferences": owners}}) == found
