"""The application to run: the parts of a Pod that the agent uses, parsed from the JSON of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

DEFAULT_GRACE_SECONDS = 30
REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z0-9]+)\))")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class InvalidApplication(Exception):
    """The Pod cannot be run. The message names the field."""


@dataclass(frozen=True)
class Probe:
    handler: str
    """`exec`, `httpGet` or `tcpSocket`"""
    action: Json
    initial_delay: int = 0
    timeout: int = 1
    period: int = 10
    successes: int = 1
    failures: int = 3
    grace_seconds: int | None = None

    @classmethod
    def parse(cls, probe: Json, where: str) -> Probe:
        handlers = [name for name in ("exec", "httpGet", "tcpSocket") if name in probe]
        if len(handlers) != 1:
            raise InvalidApplication(f"{where}: must have one of exec, httpGet, tcpSocket")
        return cls(
            handlers[0],
            probe[handlers[0]],
            probe.get("initialDelaySeconds") or 0,
            probe.get("timeoutSeconds") or 1,
            probe.get("periodSeconds") or 10,
            probe.get("successThreshold") or 1,
            probe.get("failureThreshold") or 3,
            probe.get("terminationGracePeriodSeconds"),
        )


@dataclass(frozen=True)
class Mount:
    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Container:
    name: str
    image: str = ""
    pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """numbers of the ports that have names"""
    mounts: tuple[Mount, ...] = ()
    probes: Mapping[str, Probe] = field(default_factory=dict)
    """by `startup`, `liveness`, `readiness`"""

    @classmethod
    def parse(cls, container: Json, where: str) -> Container:
        name, image = container.get("name", ""), container.get("image", "")
        if not NAME.fullmatch(name):
            raise InvalidApplication(f"{where}.name: Invalid value: {name!r}: must be a DNS label")
        if not image and not container.get("command"):
            raise InvalidApplication(f"{where}.command: Required value: a container without an image needs a command")
        environment: dict[str, str] = {}
        for variable in container.get("env", ()):
            environment[variable["name"]] = expand(variable.get("value", ""), environment)
        return cls(
            name,
            image,
            container.get("imagePullPolicy") or ("Always" if _is_latest(image) else "IfNotPresent"),
            tuple(expand(each, environment) for each in container.get("command", ())),
            tuple(expand(each, environment) for each in container.get("args", ())),
            container.get("workingDir", ""),
            environment,
            {port["name"]: port.get("containerPort", 0) for port in container.get("ports", ()) if port.get("name")},
            tuple(_mount(each, where) for each in container.get("volumeMounts", ())),
            {
                kind: Probe.parse(container[f"{kind}Probe"], f"{where}.{kind}Probe")
                for kind in ("startup", "liveness", "readiness")
                if f"{kind}Probe" in container
            },
        )


@dataclass(frozen=True)
class VolumeFile:
    path: str
    content: bytes = b""
    mode: int = 0o644


@dataclass(frozen=True)
class Volume:
    name: str
    kind: str
    """`emptyDir`, `configMap` or `secret`"""
    files: tuple[VolumeFile, ...] = ()
    in_memory: bool = False

    @classmethod
    def parse(cls, volume: Json, where: str) -> Volume:
        kinds = [name for name in ("emptyDir", "configMap", "secret") if name in volume]
        if len(kinds) != 1 or not NAME.fullmatch(volume.get("name", "")):
            raise InvalidApplication(f"{where}: must have a name and one of emptyDir, configMap, secret")
        files = tuple(_file(each, where) for each in volume.get("files", ()))
        in_memory = kinds[0] != "emptyDir" or volume["emptyDir"].get("medium") == "Memory"
        return cls(volume["name"], kinds[0], files, in_memory)


@dataclass(frozen=True)
class Application:
    uid: str
    name: str
    namespace: str
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    grace_seconds: int = DEFAULT_GRACE_SECONDS
    registry_auth: bytes = b""

    @classmethod
    def parse(cls, pod: Json) -> Application:
        """Raises InvalidApplication."""
        metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
        if not metadata.get("uid"):
            raise InvalidApplication("metadata.uid: Required value")
        policy, grace = spec.get("restartPolicy") or "Always", spec.get("terminationGracePeriodSeconds")
        if policy not in ("Always", "OnFailure", "Never"):
            raise InvalidApplication(f"spec.restartPolicy: Unsupported value: {policy!r}")
        parsed = cls(
            metadata["uid"],
            metadata.get("name", ""),
            metadata.get("namespace", ""),
            _parsed(Container, spec, "initContainers"),
            _parsed(Container, spec, "containers"),
            _parsed(Volume, spec, "volumes"),
            policy,
            DEFAULT_GRACE_SECONDS if grace is None else grace,
            spec.get("registryAuth", b""),
        )
        parsed._check()
        return parsed

    @property
    def all_containers(self) -> tuple[Container, ...]:
        return self.init_containers + self.containers

    def _check(self) -> None:
        if not self.containers:
            raise InvalidApplication("spec.containers: Required value")
        names = [each.name for each in self.all_containers]
        if len(names) != len({*names}):
            raise InvalidApplication("spec.containers: two containers have the same name")
        volumes = {each.name for each in self.volumes}
        for container in self.all_containers:
            for mount in container.mounts:
                if mount.volume not in volumes:
                    raise InvalidApplication(f"container {container.name}: no volume is named {mount.volume!r}")


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` as Kubernetes does: unknown names stay as they are, and `$$` is a dollar sign."""
    return REFERENCE.sub(lambda found: environment.get(found[1], found[0]) if found[1] else "$", text)


def _parsed(kind: Any, spec: Json, name: str) -> tuple[Any, ...]:
    return tuple(kind.parse(each, f"spec.{name}[{number}]") for number, each in enumerate(spec.get(name, ())))


def _mount(mount: Json, where: str) -> Mount:
    path, sub_path = mount.get("mountPath", ""), mount.get("subPath", "")
    if not path.startswith("/"):
        raise InvalidApplication(f"{where}.volumeMounts: mountPath {path!r} must begin with /")
    return Mount(
        mount.get("name", ""), path, _inside(sub_path, where) if sub_path else "", mount.get("readOnly", False)
    )


def _file(file: Json, where: str) -> VolumeFile:
    return VolumeFile(_inside(file.get("path", ""), where), file.get("content", b""), file.get("mode", 0o644))


def _inside(path: str, where: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise InvalidApplication(f"{where}: the path {path!r} must be relative and without '..'")
    return path


def _is_latest(image: str) -> bool:
    tag = image.rsplit("/", 1)[-1]
    return "@" not in tag and (":" not in tag or tag.endswith(":latest"))
