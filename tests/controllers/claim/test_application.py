"""What `spec.application` of a claim becomes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, cast

import pytest
import yaml

from controllers.claim.application import needs_boot, read_pod_spec, refusal, with_application
from controllers.claim.snapshot import Failure
from poolhouse.api.kinds.application import Application
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unreachable

Json = dict[str, Any]

INSTANCES: Json = {"imageID": "ami-1", "protocol": "GRPC", "port": 8200}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "ci"}}}
SERVER = {"name": "web", "command": ["/bin/web", "-v"], "args": ["80"], "env": [{"name": "A", "value": "b c"}]}
IMAGE = {"name": "web", "image": "nginx:1"}


def app(*containers: Json, **given: Any) -> Application:
    return Application.model_validate({"containers": list(containers), **given})


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
        pytest.param(app(SERVER), vms(None), True, "ApplicationUnsupported", id="a VM without cloud-init"),
        pytest.param(app(SERVER), vms("#!/bin/sh"), True, "ApplicationUnsupported", id="a script"),
        pytest.param(app(SERVER), vms("#cloud-config\n- a"), True, "ApplicationUnsupported", id="a list"),
        pytest.param(app(SERVER), vms("#cloud-config\n{"), True, "ApplicationUnsupported", id="invalid YAML"),
    ],
)
def test_refusals(application: Application | None, template: Json, allowed: bool, reason: str | None) -> None:
    found = refusal(application, template, allowed=allowed)
    assert (found.reason if found else None) == reason


def test_only_vms_need_a_boot() -> None:
    assert needs_boot(None, vms()) == ""
    assert needs_boot(app(SERVER), INSTANCES) == ""
    assert needs_boot(app(SERVER), vms())


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


class Secrets:
    def __init__(self, **found: Json | ApiError) -> None:
        self.found = found
        self.read: list[str] = []

    async def get(self, resource: Any, namespace: str, name: str) -> Json:
        self.read.append(name)
        found = self.found.get(name, NotFound("no such Secret"))
        if isinstance(found, ApiError):
            raise found
        return {"data": {key: b64encode(text.encode()).decode() for key, text in found.items()}}


async def pod_spec(secrets: Secrets, *containers: Json) -> Json | Failure:
    return await read_pod_spec(cast(Api, secrets), "ns", app(*containers))


async def test_an_agent_gets_the_values_of_secrets() -> None:
    secrets = Secrets(tokens={"ci": "s3cret"})
    optional = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "none", "optional": True}}}
    found = await pod_spec(secrets, {**IMAGE, "env": [SECRET, optional, {"name": "A"}]}, SERVER | {"env": [SECRET]})
    assert isinstance(found, dict)
    first, second = found["containers"]
    assert first["image"] == "nginx:1"
    assert first["env"] == [{"name": "TOKEN", "value": "s3cret"}, {"name": "A", "value": ""}]
    assert second["env"] == [{"name": "TOKEN", "value": "s3cret"}]
    assert second["command"] == ["/bin/web", "-v"]
    assert found["restartPolicy"] == "Always"
    assert secrets.read == ["tokens"]


@pytest.mark.parametrize(
    ("secrets", "reason"),
    [
        pytest.param(Secrets(), "ApplicationSecretMissing", id="no Secret"),
        pytest.param(Secrets(tokens={"other": "x"}), "ApplicationSecretMissing", id="no entry"),
        pytest.param(Secrets(tokens=Forbidden("no right")), "SecretsForbidden", id="no right"),
    ],
)
async def test_missing_secrets(secrets: Secrets, reason: str) -> None:
    found = await pod_spec(secrets, {**IMAGE, "env": [SECRET]})
    assert isinstance(found, Failure)
    assert found.reason == reason
    assert "tokens" in found.message


async def test_errors_that_pass_are_raised() -> None:
    with pytest.raises(Unreachable):
        await pod_spec(Secrets(tokens=Unreachable("later")), {**IMAGE, "env": [SECRET]})
