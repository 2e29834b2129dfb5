"""What virt-api's webhook says to the eviction of a launcher Pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.runtime.errors import NotFound
from poolhouse.runtime.resource import PODS, Resource
from poolhouse.stack.engine.admission.evictions import DESCHEDULER, Verdict, decide
from poolhouse.stack.engine.admission.server import answer_eviction
from poolhouse.stack.engine.launcher.pods import new_pod
from poolhouse.stack.engine.objects import VMI, Launcher
from tests.stack.engine.builders import vmi

Json = dict[str, Any]
MIGRATES = ClusterSettings(eviction_strategy="LiveMigrate")
TRIGGERED = 'Eviction triggered evacuation of VMI "default/vm"'


@pytest.mark.parametrize(
    ("of", "settings", "expected"),
    [
        pytest.param(vmi(eviction_strategy="None"), MIGRATES, Verdict(), id="None"),
        pytest.param(vmi(), ClusterSettings(), Verdict(), id="no strategy"),
        pytest.param(vmi(), MIGRATES, Verdict(TRIGGERED, mark=True), id="that of the cluster"),
        pytest.param(vmi(eviction_strategy="External"), MIGRATES, Verdict(TRIGGERED, mark=True), id="External"),
        pytest.param(
            vmi(status={"evacuationNodeName": "node-1"}),
            MIGRATES,
            Verdict(f"Evacuation in progress: {TRIGGERED}"),
            id="a marked VMI",
        ),
        pytest.param(
            vmi(status={"nodeName": "node-2"}), MIGRATES, Verdict("Eviction request for target Pod"), id="another node"
        ),
    ],
)
def test_the_eviction_strategy_decides(of: VMI, settings: ClusterSettings, expected: Verdict) -> None:
    assert decide(of, Launcher("default", "virt-launcher-vm", "u", node="node-1"), settings) == expected


class Cluster:
    """A Pod and its VMI, and the patches of the VMI."""

    def __init__(self) -> None:
        self.pod: Json = new_pod(vmi(), {}, "node-1")
        self.pod["metadata"]["uid"] = "pod-uid"
        self.patches: list[Json] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        if resource is not PODS:
            metadata = {"namespace": namespace, "name": name, "uid": "vmi-uid"}
            return {"metadata": metadata, "spec": {"domain": {}}, "status": {"nodeName": "node-1"}}
        if name != self.pod["metadata"]["name"]:
            raise NotFound(f"no Pod {name}")
        return self.pod

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Json) -> None:
        self.patches.append(patch)

    async def review(self, name: str = "", *, annotations: Json | None = None, **request: Any) -> Json:
        eviction = {"metadata": {"annotations": annotations or {}}, **request.pop("eviction", {})}
        asked = {"uid": "u", "operation": "CREATE", "namespace": "default", "object": eviction, **request}
        asked["name"] = name or self.pod["metadata"]["name"]
        answer = await answer_eviction(self, json.dumps({"request": asked}).encode(), MIGRATES)
        found: Json = answer["response"]
        return found


async def test_a_denied_eviction_marks_the_vmi() -> None:
    cluster = Cluster()
    response = await cluster.review()
    assert response == {"uid": "u", "allowed": False, "status": {"code": 429, "message": TRIGGERED}}
    assert cluster.patches == [{"metadata": {"uid": "vmi-uid"}, "status": {"evacuationNodeName": "node-1"}}]


async def test_the_mark_says_that_the_descheduler_asked() -> None:
    cluster = Cluster()
    await cluster.review(annotations={"requested-by": DESCHEDULER})
    assert cluster.patches[0]["metadata"]["annotations"] == {"kubevirt.io/eviction-source": "descheduler"}


@pytest.mark.parametrize("dry", [{"dryRun": True}, {"eviction": {"deleteOptions": {"dryRun": ["All"]}}}])
async def test_a_dry_run_marks_nothing(dry: Json) -> None:
    cluster = Cluster()
    assert (await cluster.review(**dry))["status"]["message"] == TRIGGERED
    assert cluster.patches == []


async def test_other_pods_are_allowed() -> None:
    cluster = Cluster()
    assert (await cluster.review("another"))["allowed"]
    cluster.pod["status"] = {"phase": "Succeeded"}
    assert (await cluster.review())["allowed"]
    assert cluster.patches == []
