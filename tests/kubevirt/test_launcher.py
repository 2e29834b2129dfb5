"""The Pod and the command by which the domain of a VMI is read."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kubevirt.launcher import SESSION, SYSTEM, dump_command, running_pod

Json = dict[str, Any]


def vmi(annotations: Json | None = None, **status: Any) -> Json:
    return {"metadata": {"namespace": "shop", "name": "web", "annotations": annotations}, "status": status}


@pytest.mark.parametrize(
    ("instance", "address"),
    [
        pytest.param(vmi(runtimeUser=107), SESSION, id="without root"),
        pytest.param(vmi(runtimeUser=0), SYSTEM, id="as root, by the feature gate Root"),
        pytest.param(vmi(), SYSTEM, id="as root"),
        pytest.param(vmi({"kubevirt.io/nonroot": ""}), SESSION, id="without root, by an old KubeVirt"),
    ],
)
def test_the_libvirt_of_a_vmi(instance: Json, address: str) -> None:
    assert dump_command(instance) == ["virsh", "-c", address, "dumpxml", "shop_web"]


def pod(name: str, uid: str, node: str = "n1", phase: str = "Running") -> Json:
    return {"metadata": {"name": name, "uid": uid}, "spec": {"nodeName": node}, "status": {"phase": phase}}


RUNNING = vmi(nodeName="n1", activePods={"a": "n1", "b": "n2"})


@pytest.mark.parametrize(
    ("instance", "pods", "expected"),
    [
        pytest.param(RUNNING, [pod("source", "a"), pod("target", "b", "n2")], "source", id="during a migration"),
        pytest.param(RUNNING, [pod("forged", "x"), pod("source", "a")], "source", id="a Pod that a user has made"),
        pytest.param(RUNNING, [pod("source", "a", phase="Succeeded")], None, id="it has ended"),
        pytest.param(RUNNING, [], None, id="it is gone"),
        pytest.param(vmi(nodeName="n1"), [pod("source", "a")], None, id="KubeVirt names no Pod"),
    ],
)
def test_the_pod_in_which_the_guest_runs(instance: Json, pods: list[Json], expected: str | None) -> None:
    assert running_pod(instance, pods) == expected
