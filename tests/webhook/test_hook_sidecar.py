"""VMIs with a hardware record get the sidecar that restores it, where KubeVirt accepts sidecars."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import Any

import pytest

from defaulter.contract import SIDECARS
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from webhook.hook_sidecar import SOCKET, HookSidecar
from webhook.review import AdmissionRequest, AdmissionResponse

Json = dict[str, Any]
RECORD = {"poolhouse.dev/hardware": "{}"}
OTHER = {"image": "other"}
VMI, UNCHANGED = "VirtualMachineInstance", AdmissionResponse()
IMAGE = "registry.example/poolhouse-defaulter:1"


def settings(*gates: str) -> ClusterSettings:
    return ClusterSettings(versions=("v1.9.0",), feature_gates=frozenset(gates))


def request(
    annotations: Json | None, operation: str = "CREATE", kind: str = "VirtualMachineInstance"
) -> AdmissionRequest:
    document = {"kind": kind, "metadata": {"name": "a", "annotations": annotations}, "spec": {}}
    return AdmissionRequest("1", operation, "kubevirt.io/v1", kind, object=document)


class Answers:
    def __init__(self, response: AdmissionResponse) -> None:
        self._response = response

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return self._response


def sidecars(
    asked: AdmissionRequest,
    known: ClusterSettings | None,
    *,
    plugin: bool = False,
    response: AdmissionResponse = UNCHANGED,
) -> list[Json] | None:
    """The sidecars of the answer; None if the answer stays as it is."""
    before = deepcopy(asked.object)
    answer = asyncio.run(HookSidecar(Answers(response), IMAGE, lambda: known, plugin=plugin).handle(asked))
    assert asked.object == before
    if answer == response:
        return None
    found: list[Json] = json.loads(answer.object["metadata"]["annotations"][SIDECARS])
    return found


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        pytest.param(RECORD, [], id="none named"),
        pytest.param(RECORD | {SIDECARS: ""}, [], id="an empty annotation"),
        pytest.param(RECORD | {SIDECARS: json.dumps([OTHER])}, [OTHER], id="another sidecar stays"),
    ],
)
def test_a_recorded_vmi_gets_the_sidecar(annotations: Json, kept: list[Json]) -> None:
    *others, ours = sidecars(request(annotations), settings("Sidecar")) or []
    assert others == kept
    assert ours["image"] == IMAGE
    assert ours["command"][-2:] == ["defaulter.sidecar", SOCKET]


def test_a_second_call_adds_nothing() -> None:
    named = json.dumps(sidecars(request(RECORD), settings("Sidecar")))
    assert sidecars(request(RECORD | {SIDECARS: named}), settings("Sidecar")) is None


def test_what_defaulting_filled_stays() -> None:
    filled = {**(request(RECORD).object or {}), "spec": {"architecture": "amd64"}}
    handler = HookSidecar(Answers(AdmissionResponse(object=filled)), IMAGE, lambda: settings("Sidecar"), plugin=False)
    answer = asyncio.run(handler.handle(request(RECORD)))
    assert answer.object["spec"] == {"architecture": "amd64"}
    assert SIDECARS in answer.object["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("asked", "known", "plugin"),
    [
        pytest.param(request(RECORD), None, False, id="no KubeVirt object"),
        pytest.param(request(RECORD), settings(), False, id="virt-api refuses sidecars"),
        pytest.param(request(RECORD), settings("Sidecar", "Plugins"), True, id="the plugin does it"),
        pytest.param(request({}), settings("Sidecar"), False, id="no record"),
        pytest.param(request(None), settings("Sidecar"), False, id="no annotations"),
        pytest.param(request(RECORD, "UPDATE"), settings("Sidecar"), False, id="a VMI that runs"),
        pytest.param(request(RECORD, kind="VirtualMachine"), settings("Sidecar"), False, id="a VM"),
        pytest.param(request(RECORD | {SIDECARS: "{"}), settings("Sidecar"), False, id="no JSON"),
        pytest.param(request(RECORD | {SIDECARS: "{}"}), settings("Sidecar"), False, id="no list"),
        pytest.param(
            request(RECORD | {SIDECARS: json.dumps([{"configMap": {"name": "poolhouse-hardware"}}])}),
            settings("Sidecar"),
            False,
            id="the hook of `poolhouse hook`",
        ),
    ],
)
def test_the_answer_stays(asked: AdmissionRequest, known: ClusterSettings | None, plugin: bool) -> None:
    assert sidecars(asked, known, plugin=plugin) is None


def test_a_plugin_that_kubevirt_does_not_run_needs_the_sidecar() -> None:
    assert sidecars(request(RECORD), settings("Sidecar"), plugin=True) is not None


def test_a_denial_stays() -> None:
    denied = AdmissionResponse(problems=(Problem("spec", "is wrong"),))
    assert sidecars(request(RECORD), settings("Sidecar"), response=denied) is None
