"""What `spec.application` of a claim becomes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from controllers.claim.application import needs_boot, refusal, with_application
from poolhouse.api.kinds.application import Application

Json = dict[str, Any]

INSTANCES: Json = {"imageID": "ami-1", "protocol": "GRPC", "port": 8200}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "ci"}}}
SERVER = {"name": "web", "command": ["/bin/web", "-v"], "args": ["80"], "env": [{"name": "A", "value": "b c"}]}
IMAGE = {"name": "web", "image": "nginx:1"}


def app(*containers: Json, **given: Any) -> Application:
    return Application.model_validate({"containers": list(containers), **given})


def with_agent(template: Json) -> Json:
    return {**template, "metadata": {"annotations": {"poolhouse.dev/agent": '{"port":8200}'}}}


def vms(user_data: str | None = "#cloud-config\n", kind: str = "cloudInitNoCloud") -> Json:
    volumes: list[Json] = [{"name": "root", "containerDisk": {"image": "i"}}]
    if user_data is not None:
        volumes.append({"name": "init", kind: {"userData": user_data}})
    return {"spec": {"template": {"spec": {"volumes": volumes}}}}


@pytest.mark.parametrize(
    ("application", "template", "allowed", "reason"),
    [
        pytest.param(None, vms(None), False, None, id="no application"),
        pytest.param(app(SERVER), INSTANCES, False, "ApplicationNotAllowed", id="not allowed"),
        pytest.param(app(IMAGE), INSTANCES, True, None, id="an image for an agent"),
        pytest.param(app(SERVER), {**INSTANCES, "protocol": "TCP"}, True, "ApplicationUnsupported", id="no agent"),
        pytest.param(app(SERVER), vms(), True, None, id="a command in a VM"),
        pytest.param(app(IMAGE), vms(), True, "ApplicationUnsupported", id="an image in a VM"),
        pytest.param(app({**SERVER, "env": [SECRET]}), vms(), True, "ApplicationUnsupported", id="a Secret in a VM"),
        pytest.param(
            app(SERVER, initContainers=[{**SERVER, "name": "first"}]),
            vms(),
            True,
            "ApplicationUnsupported",
            id="an init container in a VM",
        ),
        pytest.param(
            app({**SERVER, "livenessProbe": {"tcpSocket": {"port": 80}}}),
            vms(),
            True,
            "ApplicationUnsupported",
            id="a probe in a VM",
        ),
        pytest.param(
            app(SERVER, volumes=[{"name": "tmp", "emptyDir": {}}]),
            vms(),
            True,
            "ApplicationUnsupported",
            id="a volume in a VM",
        ),
        pytest.param(
            app({**SERVER, "envFrom": [{"configMapRef": {"name": "settings"}}]}),
            vms(),
            True,
            "ApplicationUnsupported",
            id="a ConfigMap in a VM",
        ),
        pytest.param(app(IMAGE), with_agent(vms(None)), True, None, id="an image for an agent in a VM"),
        pytest.param(app(SERVER), vms(None), True, "ApplicationUnsupported", id="a VM without cloud-init"),
        pytest.param(app(SERVER), vms("#!/bin/sh"), True, "ApplicationUnsupported", id="a script"),
        pytest.param(app(SERVER), vms("#cloud-config\n- a"), True, "ApplicationUnsupported", id="a list"),
        pytest.param(app(SERVER), vms("#cloud-config\n{"), True, "ApplicationUnsupported", id="invalid YAML"),
        pytest.param(
            app(SERVER), vms("#cloud-config\nexpires: 2026-02-30"), True, "ApplicationUnsupported", id="no such date"
        ),
        pytest.param(
            app(SERVER), vms("#cloud-config\n" + "[" * 9999), True, "ApplicationUnsupported", id="lists in lists"
        ),
    ],
)
def test_refusals(application: Application | None, template: Json, allowed: bool, reason: str | None) -> None:
    found = refusal(application, template, allowed=allowed)
    assert (found.reason if found else None) == reason


def test_only_vms_without_an_agent_need_a_boot() -> None:
    assert needs_boot(None, vms()) == ""
    assert needs_boot(app(SERVER), INSTANCES) == ""
    assert needs_boot(app(SERVER), vms())
    assert needs_boot(app(SERVER), with_agent(vms())) == ""


@pytest.mark.parametrize("kind", ["cloudInitNoCloud", "cloudInitConfigDrive"])
def test_cloud_init_starts_the_commands(kind: str) -> None:
    before = vms("#cloud-config\nhostname: a\nruncmd: [[echo, first]]\n", kind)
    after = with_application(before, app(SERVER, restartPolicy="OnFailure"))
    text = after["spec"]["template"]["spec"]["volumes"][1][kind]["userData"]
    assert text.startswith("#cloud-config\n")
    config = yaml.safe_load(text)
    assert config["hostname"] == "a"
    first, second = config["runcmd"]
    assert first == ["echo", "first"]
    assert second == [
        "systemd-run",
        "--unit=poolhouse-web",
        "--property=Restart=on-failure",
        "--setenv=A=b c",
        "--",
        "/bin/web",
        "-v",
        "80",
    ]
    assert before == vms("#cloud-config\nhostname: a\nruncmd: [[echo, first]]\n", kind), "the template is the pool's"


def test_a_template_without_application_stays() -> None:
    assert with_application(INSTANCES, app(IMAGE)) == INSTANCES
    assert with_application(vms(), None) == vms()
    assert with_application(with_agent(vms()), app(SERVER)) == with_agent(vms()), "the agent starts it"
