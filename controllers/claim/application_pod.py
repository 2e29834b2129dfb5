"""The Pod that an agent gets for `spec.application` of a claim, with the contents of ConfigMaps and Secrets.

An agent has no access to the API server. So the controllers read what the application names, in the namespace of the
claim, and hand over values in the place of references: variables, files of volumes, and credentials of registries.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from controllers.claim.personalization import TRANSIENT
from controllers.claim.reasons import ClaimReason
from controllers.claim.snapshot import Claim, Failure
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.application import Application
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CONFIG_MAPS, SECRETS, Resource

Kind = Literal["ConfigMap", "Secret"]
Content = Mapping[str, bytes]
RESOURCES: dict[Kind, Resource] = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}
VARIABLE = re.compile("[-._a-zA-Z][-._a-zA-Z0-9]*")
DOCKER_CONFIGS = (".dockerconfigjson", ".dockercfg")


class _Missing(Exception):
    """An object or an entry that the application needs does not exist, or cannot be used."""


@dataclass(frozen=True)
class Contents:
    """The contents of the ConfigMaps and Secrets by kind and name. None for an object that does not exist."""

    found: Mapping[tuple[Kind, str], Content | None]

    def all_of(self, kind: Kind, name: str, *, optional: bool) -> Content:
        content = self.found.get((kind, name))
        if content is None and not optional:
            raise _Missing(f"{kind} {name} does not exist")
        return content or {}

    def entry(self, kind: Kind, name: str, key: str, *, optional: bool) -> bytes | None:
        content = self.found.get((kind, name))
        value = None if content is None else content.get(key)
        if value is None and not optional:
            there = "has no" if content is not None else "does not exist; it needs"
            raise _Missing(f"{kind} {name} {there} entry {key}")
        return value


async def read_pod(api: Api, claim: Claim) -> Json | Failure:
    """The Pod for the agent. Its name and UID are those of the Pod that owns the claim, if a Pod does. Raises errors
    that pass by themselves."""
    application = claim.spec.application
    assert application is not None
    contents = await _read(api, claim.namespace, application)
    if isinstance(contents, Failure):
        return contents
    try:
        spec = _with_contents(application, contents)
    except _Missing as error:
        return Failure(ClaimReason.APPLICATION_SOURCE_MISSING, f"application: {error}")
    identity = claim.application_owner
    metadata = {
        "namespace": claim.namespace,
        "name": identity.name,
        "uid": identity.uid,
        "labels": dict(application.labels),
        "annotations": dict(application.annotations),
    }
    return {"metadata": metadata, "spec": spec}


async def _read(api: Api, namespace: str, application: Application) -> Contents | Failure:
    names: tuple[tuple[Kind, tuple[str, ...]], ...] = (
        ("ConfigMap", application.config_maps),
        ("Secret", application.secrets),
    )
    found: dict[tuple[Kind, str], Content | None] = {}
    for kind, name in ((kind, name) for kind, all_of_kind in names for name in all_of_kind):
        try:
            found[kind, name] = _content(kind, await api.get(RESOURCES[kind], namespace, name))
        except NotFound:
            found[kind, name] = None
        except TRANSIENT:
            raise
        except ApiError as error:
            message = f"application: {kind} {name}: {error.message}; see Applications in the documentation of claims"
            return Failure(ClaimReason.APPLICATION_SOURCE_FORBIDDEN, message)
    return Contents(found)


def _content(kind: Kind, document: Json) -> Content:
    text = document.get("data") or {}
    if kind == "Secret":
        return {key: b64decode(value) for key, value in text.items()}
    binary = {key: b64decode(value) for key, value in (document.get("binaryData") or {}).items()}
    return {**{key: value.encode() for key, value in text.items()}, **binary}


def _with_contents(application: Application, contents: Contents) -> Json:
    """The spec of the Pod. Raises `_Missing`."""
    spec = application.json()
    for field in ("labels", "annotations", "imagePullSecrets"):
        spec.pop(field, None)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        sources = container.pop("envFrom", ())
        variables = dict(_variables_of_sources(sources, contents)) | dict(
            _variables(container.pop("env", ()), contents)
        )
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    for volume in spec.get("volumes", ()):
        if files := list(_files(volume, contents)):
            volume["files"] = files
    if application.image_pull_secrets:
        names = [each.name for each in application.image_pull_secrets]
        spec["registryAuth"] = orjson.dumps({"auths": _credentials(names, contents)})
    return spec


def _variables_of_sources(sources: Iterable[Json], contents: Contents) -> Iterator[tuple[str, str]]:
    for source in sources:
        kind: Kind = "ConfigMap" if source.get("configMapRef") else "Secret"
        ref = source.get("configMapRef") or source["secretRef"]
        for key, value in contents.all_of(kind, ref["name"], optional=ref.get("optional", False)).items():
            name = source.get("prefix", "") + key
            if VARIABLE.fullmatch(name):  # like the kubelet, which skips other names
                yield name, _text(kind, ref["name"], key, value)


def _variables(env: Iterable[Json], contents: Contents) -> Iterator[tuple[str, str]]:
    for variable in env:
        source = variable.get("valueFrom")
        if source is None:
            yield variable["name"], variable.get("value") or ""
            continue
        kind: Kind = "Secret" if source.get("secretKeyRef") else "ConfigMap"
        ref = source.get("secretKeyRef") or source["configMapKeyRef"]
        value = contents.entry(kind, ref["name"], ref["key"], optional=ref.get("optional", False))
        if value is not None:
            yield variable["name"], _text(kind, ref["name"], ref["key"], value)


def _text(kind: Kind, name: str, key: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _Missing(f"{kind} {name}: entry {key} is no text, so it cannot be a variable; mount it") from None


def _files(volume: Json, contents: Contents) -> Iterator[Json]:
    kind: Kind = "Secret" if volume.get("secret") else "ConfigMap"
    source = volume.get("secret") or volume.get("configMap")
    if not source:
        return
    name, optional = source.get("secretName") or source["name"], source.get("optional", False)
    mode = source.get("defaultMode", 0o644)
    if not source.get("items"):
        for key, value in contents.all_of(kind, name, optional=optional).items():
            yield {"path": key, "content": value, "mode": mode}
        return
    for item in source["items"]:
        found = contents.entry(kind, name, item["key"], optional=optional)
        if found is not None:
            yield {"path": item["path"], "content": found, "mode": item.get("mode", mode)}


def _credentials(names: Iterable[str], contents: Contents) -> Json:
    """The credentials by registry. The first Secret with a registry wins. Like a kubelet, ignores missing Secrets."""
    found: dict[str, Any] = {}
    for name in names:
        content = contents.all_of("Secret", name, optional=True)
        for key in DOCKER_CONFIGS:
            try:
                config = orjson.loads(content[key])
                found = {**(config["auths"] if key == DOCKER_CONFIGS[0] else config), **found}
            except (KeyError, TypeError, orjson.JSONDecodeError):
                continue
    return found
