"""AdmissionReviews as virt-api answers them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.stack.engine.admission.server import PATHS, answer, configurations

Json = dict[str, Any]

SETTINGS = ClusterSettings(versions=("v1.9.0",))


def review(path: str, document: Json, old: Json | None = None, user: str = "jane") -> Json:
    operation = "CREATE" if old is None else "UPDATE"
    request = {"uid": "u", "operation": operation, "object": document, "oldObject": old, "userInfo": {"username": user}}
    found = answer(path, json.dumps({"request": request}).encode(), SETTINGS, "kubevirt")["response"]
    assert found.pop("uid") == "u"
    if "patch" in found:
        found["patch"] = json.loads(base64.b64decode(found["patch"]))
    return found


def vm(**spec: Any) -> Json:
    template = {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}
    return {"metadata": {"name": "a"}, "spec": {"template": template, **spec}}


def test_the_mutator_replaces_the_whole_spec() -> None:
    found = review("/virtualmachines-mutate", vm(running=True))
    assert found["allowed"] is True
    (operation,) = found["patch"]
    assert (operation["op"], operation["path"]) == ("replace", "/spec")
    assert operation["value"]["template"]["spec"]["domain"]["machine"] == {"type": "q35"}


def test_a_refusal_lists_all_causes() -> None:
    found = review("/virtualmachines-validate", vm(running=True, runStrategy="x"))
    assert found["allowed"] is False
    status = found["status"]
    assert (status["code"], status["reason"], len(status["details"]["causes"])) == (422, "Invalid", 2)
    assert status["message"].endswith("Invalid RunStrategy (x)")


def test_running_is_deprecated() -> None:
    assert "deprecated" in review("/virtualmachines-validate", vm(running=True))["warnings"][0]


def test_a_disk_template_of_another_namespace_is_refused() -> None:
    template = {"metadata": {"name": "d", "namespace": "other"}, "spec": {"storage": {}, "source": {"blank": {}}}}
    document = vm(runStrategy="Halted", dataVolumeTemplates=[template])
    document["metadata"]["namespace"] = "default"
    document["spec"]["template"]["spec"] |= {"volumes": [{"name": "d", "dataVolume": {"name": "d"}}]}
    causes = review("/virtualmachines-validate", document)["status"]["details"]["causes"]
    message = "Embedded DataVolume namespace other differs from VM namespace default"
    assert [(each["message"], each["field"]) for each in causes] == [(message, "spec.dataVolumeTemplates[0]")]


@pytest.mark.parametrize(("user", "patched"), [("jane", True), ("kubevirt", False)])
def test_only_kubevirt_writes_the_status_of_a_vmi(user: str, patched: bool) -> None:
    old: Json = {"metadata": {}, "spec": {}, "status": {"phase": "Running"}}
    found = review("/virtualmachineinstances-mutate", {**old, "status": {"phase": "Failed"}}, old, user)
    back = [{"op": "replace", "path": "/status", "value": {"phase": "Running"}}]
    assert found == {"allowed": True, **({"patchType": "JSONPatch", "patch": back} if patched else {})}


def test_every_webhook_has_a_configuration_that_sorts_before_poolhouse() -> None:
    found = configurations("https://127.0.0.1:1", b"", "kubevirt")
    urls = [webhook["clientConfig"]["url"] for each in found for webhook in each["webhooks"]]
    assert sorted(urls) == sorted(f"https://127.0.0.1:1{path}" for path in PATHS)
    assert all(each["metadata"]["name"] < "zz-poolhouse" for each in found)
