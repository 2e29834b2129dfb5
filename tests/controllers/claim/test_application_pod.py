"""The Pod that an agent gets: values in the place of references."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from controllers.claim.application_pod import read_pod
from controllers.claim.snapshot import Failure, parse_claim
from controllers.shared.pod_claims import claim_metadata
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, Unreachable
from poolhouse.runtime.resource import Resource

Json = dict[str, Any]

TOKEN = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "ci"}}}
COLOUR = {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}}
IMAGE = {"name": "web", "image": "nginx:1"}
POD = claim_metadata("web-0", "pod-uid")


class Objects:
    """The ConfigMaps and Secrets of a namespace."""

    def __init__(self, **found: Json | ApiError) -> None:
        self.found = {"settings": {"colour": "blue", "size": "2", "no name!": "x"}, "tokens": {"ci": "s3cret"}, **found}
        self.read: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        self.read.append(f"{resource.kind} {namespace}/{name}")
        found = self.found.get(name, NotFound("no such object"))
        if isinstance(found, ApiError):
            raise found
        if resource.kind == "ConfigMap":
            return {"data": found, "binaryData": {"logo": b64encode(b"\xff").decode()}}
        return {"data": {key: b64encode(text.encode()).decode() for key, text in found.items()}}


def claim_of(*containers: Json, metadata: Json | None = None, **application: Any) -> Json:
    metadata = {"namespace": "ns", "name": "mine", "uid": "claim-uid", **(metadata or {})}
    return {"metadata": metadata, "spec": {"application": {"containers": list(containers), **application}}}


async def pod(objects: Objects, *containers: Json, metadata: Json | None = None, **application: Any) -> Json | Failure:
    return await read_pod(objects, parse_claim(claim_of(*containers, metadata=metadata, **application)))


async def spec(objects: Objects, *containers: Json, **application: Any) -> Json:
    found = await pod(objects, *containers, **application)
    assert isinstance(found, dict), found
    return found["spec"]


async def test_variables_get_values() -> None:
    objects = Objects()
    missing = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "none", "optional": True}}}
    found = await spec(objects, {**IMAGE, "env": [TOKEN, COLOUR, missing, {"name": "A"}]}, {**IMAGE, "name": "b"})
    first, second = found["containers"]
    assert first["image"] == "nginx:1"
    assert first["env"] == [
        {"name": "TOKEN", "value": "s3cret"},
        {"name": "COLOUR", "value": "blue"},
        {"name": "A", "value": ""},
    ]
    assert second["env"] == []
    assert found["restartPolicy"] == "Always"
    assert objects.read == ["ConfigMap ns/settings", "Secret ns/tokens"]


async def test_variables_of_whole_objects_come_before_those_of_env() -> None:
    sources = [{"secretRef": {"name": "tokens"}, "prefix": "MY_"}, {"secretRef": {"name": "none", "optional": True}}]
    found = await spec(Objects(), {**IMAGE, "envFrom": sources, "env": [{"name": "MY_ci", "value": "own"}]})
    assert found["containers"][0]["env"] == [{"name": "MY_ci", "value": "own"}]
    assert "envFrom" not in found["containers"][0]


async def test_volumes_become_files() -> None:
    volumes = [
        {"name": "all", "secret": {"secretName": "tokens", "defaultMode": 0o400}},
        {"name": "one", "configMap": {"name": "settings", "items": [{"key": "logo", "path": "img/logo.png"}]}},
        {"name": "scratch", "emptyDir": {}},
    ]
    first, second, third = (await spec(Objects(), IMAGE, volumes=volumes))["volumes"]
    assert first["files"] == [{"path": "ci", "content": b"s3cret", "mode": 0o400}]
    assert second["files"] == [{"path": "img/logo.png", "content": b"\xff", "mode": 0o644}]
    assert "files" not in third


async def test_credentials_of_registries_are_joined() -> None:
    objects = Objects(
        one={".dockerconfigjson": '{"auths": {"a.example": {"auth": "1"}}}'},
        two={".dockercfg": '{"a.example": {"auth": "2"}, "b.example": {"auth": "2"}}'},
        bad={".dockerconfigjson": "no JSON"},
    )
    names = [{"name": name} for name in ("one", "two", "bad", "none")]
    found = await spec(objects, IMAGE, imagePullSecrets=names)
    assert found["registryAuth"] == b'{"auths":{"a.example":{"auth":"1"},"b.example":{"auth":"2"}}}'
    assert "imagePullSecrets" not in found


@pytest.mark.parametrize(
    ("metadata", "name", "uid"),
    [
        pytest.param({}, "mine", "claim-uid", id="the claim"),
        pytest.param(POD, "web-0", "pod-uid", id="the Pod of the claim"),
        pytest.param(POD | {"name": "mine"}, "mine", "claim-uid", id="a claim that a user gave to a Pod"),
    ],
)
async def test_the_identity_of_the_application(metadata: Json, name: str, uid: str) -> None:
    found = await pod(Objects(), IMAGE, metadata=metadata, labels={"app": "web"}, annotations={"note": "x"})
    assert isinstance(found, dict)
    assert found["metadata"] == {
        "namespace": "ns",
        "name": name,
        "uid": uid,
        "labels": {"app": "web"},
        "annotations": {"note": "x"},
    }
    assert "labels" not in found["spec"]


@pytest.mark.parametrize(
    ("objects", "container", "reason", "words"),
    [
        pytest.param(
            Objects(tokens=NotFound("no")),
            {"env": [TOKEN]},
            "ApplicationSourceMissing",
            "Secret tokens does not exist; it needs entry ci",
            id="no Secret",
        ),
        pytest.param(
            Objects(tokens={"other": "x"}),
            {"env": [TOKEN]},
            "ApplicationSourceMissing",
            "Secret tokens has no entry ci",
            id="no entry",
        ),
        pytest.param(
            Objects(settings=NotFound("no")),
            {"envFrom": [{"configMapRef": {"name": "settings"}}]},
            "ApplicationSourceMissing",
            "ConfigMap settings does not exist",
            id="no ConfigMap",
        ),
        pytest.param(
            Objects(),
            {"env": [{"name": "L", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "logo"}}}]},
            "ApplicationSourceMissing",
            "entry logo is no text",
            id="no text",
        ),
        pytest.param(
            Objects(tokens=Forbidden("no right")),
            {"env": [TOKEN]},
            "ApplicationSourceForbidden",
            "no right",
            id="no right",
        ),
    ],
)
async def test_what_cannot_be_read(objects: Objects, container: Json, reason: str, words: str) -> None:
    found = await pod(objects, {**IMAGE, **container})
    assert isinstance(found, Failure)
    assert found.reason == reason
    assert words in found.message


async def test_errors_that_pass_are_raised() -> None:
    with pytest.raises(Unreachable):
        await pod(Objects(tokens=Unreachable("later")), {**IMAGE, "env": [TOKEN]})
