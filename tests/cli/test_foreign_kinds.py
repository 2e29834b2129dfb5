"""Kinds of another project with the name of ours."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.cli.foreign_kinds import refuse_foreign_replica_sets
from poolhouse.cli.output import Failed
from poolhouse.runtime.errors import NotFound

Json = dict[str, Any]


class Discovery:
    def __init__(self, *resources: Json, served: bool = True) -> None:
        self._resources, self._served = resources, served

    async def request(self, method: str, path: str) -> Json:
        assert (method, path) == ("GET", "/apis/kubevirt.io/v1")
        if not self._served:
            raise NotFound("the server could not find the requested resource")
        return {"kind": "APIResourceList", "resources": list(self._resources)}


def resource(name: str = "virtualmachineinstancereplicasets", **facts: Any) -> Json:
    return {"name": name, **facts}


@pytest.mark.parametrize(
    ("discovery", "refused"),
    [
        pytest.param(Discovery(resource(categories=["all"])), True, id="KubeVirt's"),
        pytest.param(Discovery(resource()), True, id="without categories"),
        pytest.param(Discovery(resource(categories=["poolhouse", "all"])), False, id="ours"),
        pytest.param(Discovery(resource("virtualmachines", categories=["all"])), False, id="not installed"),
        pytest.param(Discovery(served=False), False, id="no kind of the group"),
    ],
)
async def test_a_command_refuses_a_kind_that_kubevirt_has_installed(discovery: Any, refused: bool) -> None:
    if not refused:
        await refuse_foreign_replica_sets(discovery)
        return
    with pytest.raises(Failed, match=r"virtualmachineinstancereplicasets\.kubevirt\.io is KubeVirt's in this cluster"):
        await refuse_foreign_replica_sets(discovery)
