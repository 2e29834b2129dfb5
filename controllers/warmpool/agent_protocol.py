"""The protocol of the agents in warm VMs and EC2 instances, as tables, and the JSON of Kubernetes as its messages.

`agent/` contains a copy of this module and the same tables as .proto files, which `make generate` writes. Only add
fields and methods: an agent ignores fields that it does not know, and answers UNIMPLEMENTED to other methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from poolhouse.service.protobuf import MAP, Field, message_classes

TEXT, NUMBER, LONG, TRUTH, BYTES = "TYPE_STRING", "TYPE_INT32", "TYPE_INT64", "TYPE_BOOL", "TYPE_BYTES"
Json = Mapping[str, Any]
Methods = Mapping[str, tuple[str, str]]
"""The request and the response of each method. A response with `[]` is a stream."""

PACKAGE = "vkvmagent.v0"
SERVICE = f"{PACKAGE}.ApplicationLifecycle"
METHODS: Methods = {
    "LaunchApplication": ("LaunchApplicationRequest", "LaunchApplicationResponse"),
    "TerminateApplication": ("TerminateApplicationRequest", "TerminateApplicationResponse"),
    "CheckApplicationHealth": ("ApplicationHealthRequest", "ApplicationHealthResponse"),
    "WatchApplicationHealth": ("ApplicationHealthRequest", "[]ApplicationHealthResponse"),
}

# A subset of the messages of the Virtual Kubelet's agent. The field numbers equal those of the agent and of a Pod in
# Kubernetes, for compatibility with existing agents. What Poolhouse adds to them has numbers from 1000.
MESSAGES: dict[str, tuple[Field, ...]] = {
    "ObjectMeta": (
        ("name", 1, TEXT),
        ("namespace", 3, TEXT),
        ("uid", 5, TEXT),
        ("labels", 11, MAP),
        ("annotations", 12, MAP),
    ),
    "Time": (("seconds", 1, LONG), ("nanos", 2, NUMBER)),
    "IntOrString": (("type", 1, LONG), ("intVal", 2, NUMBER), ("strVal", 3, TEXT)),
    "LocalObjectReference": (("name", 1, TEXT),),
    "KeyToPath": (("key", 1, TEXT), ("path", 2, TEXT), ("mode", 3, NUMBER)),
    "EmptyDirVolumeSource": (("medium", 1, TEXT),),
    "SecretVolumeSource": (
        ("secretName", 1, TEXT),
        ("items", 2, "[]KeyToPath"),
        ("defaultMode", 3, NUMBER),
        ("optional", 4, TRUTH),
    ),
    "ConfigMapVolumeSource": (
        ("localObjectReference", 1, "LocalObjectReference"),
        ("items", 2, "[]KeyToPath"),
        ("defaultMode", 3, NUMBER),
        ("optional", 4, TRUTH),
    ),
    "VolumeSource": (
        ("emptyDir", 2, "EmptyDirVolumeSource"),
        ("secret", 6, "SecretVolumeSource"),
        ("configMap", 19, "ConfigMapVolumeSource"),
    ),
    # A file of a volume with a ConfigMap or a Secret: the agent cannot read these objects.
    "VolumeFile": (("path", 1, TEXT), ("content", 2, BYTES), ("mode", 3, NUMBER)),
    "Volume": (("name", 1, TEXT), ("volumeSource", 2, "VolumeSource"), ("files", 1000, "[]VolumeFile")),
    "VolumeMount": (("name", 1, TEXT), ("readOnly", 2, TRUTH), ("mountPath", 3, TEXT), ("subPath", 4, TEXT)),
    "ContainerPort": (("name", 1, TEXT), ("hostPort", 2, NUMBER), ("containerPort", 3, NUMBER), ("protocol", 4, TEXT)),
    "EnvVar": (("name", 1, TEXT), ("value", 2, TEXT)),
    "ExecAction": (("command", 1, f"[]{TEXT}"),),
    "HTTPHeader": (("name", 1, TEXT), ("value", 2, TEXT)),
    "HTTPGetAction": (
        ("path", 1, TEXT),
        ("port", 2, "IntOrString"),
        ("host", 3, TEXT),
        ("scheme", 4, TEXT),
        ("httpHeaders", 5, "[]HTTPHeader"),
    ),
    "TCPSocketAction": (("port", 1, "IntOrString"), ("host", 2, TEXT)),
    "ProbeHandler": (("exec", 1, "ExecAction"), ("httpGet", 2, "HTTPGetAction"), ("tcpSocket", 3, "TCPSocketAction")),
    "Probe": (
        ("handler", 1, "ProbeHandler"),
        ("initialDelaySeconds", 2, NUMBER),
        ("timeoutSeconds", 3, NUMBER),
        ("periodSeconds", 4, NUMBER),
        ("successThreshold", 5, NUMBER),
        ("failureThreshold", 6, NUMBER),
        ("terminationGracePeriodSeconds", 7, LONG),
    ),
    "Container": (
        ("name", 1, TEXT),
        ("image", 2, TEXT),
        ("command", 3, f"[]{TEXT}"),
        ("args", 4, f"[]{TEXT}"),
        ("workingDir", 5, TEXT),
        ("ports", 6, "[]ContainerPort"),
        ("env", 7, "[]EnvVar"),
        ("volumeMounts", 9, "[]VolumeMount"),
        ("livenessProbe", 10, "Probe"),
        ("readinessProbe", 11, "Probe"),
        ("imagePullPolicy", 14, TEXT),
        ("startupProbe", 22, "Probe"),
    ),
    "PodSpec": (
        ("volumes", 1, "[]Volume"),
        ("containers", 2, "[]Container"),
        ("restartPolicy", 3, TEXT),
        ("terminationGracePeriodSeconds", 4, LONG),
        ("initContainers", 20, "[]Container"),
        # Credentials of the Pod's imagePullSecrets, as the JSON of a file ~/.docker/config.json.
        ("registryAuth", 1000, BYTES),
    ),
    "ContainerStateWaiting": (("reason", 1, TEXT), ("message", 2, TEXT)),
    "ContainerStateRunning": (("startedAt", 1, "Time"),),
    "ContainerStateTerminated": (
        ("exitCode", 1, NUMBER),
        ("signal", 2, NUMBER),
        ("reason", 3, TEXT),
        ("message", 4, TEXT),
        ("startedAt", 5, "Time"),
        ("finishedAt", 6, "Time"),
        ("containerID", 7, TEXT),
    ),
    "ContainerState": (
        ("waiting", 1, "ContainerStateWaiting"),
        ("running", 2, "ContainerStateRunning"),
        ("terminated", 3, "ContainerStateTerminated"),
    ),
    "ContainerStatus": (
        ("name", 1, TEXT),
        ("state", 2, "ContainerState"),
        ("lastState", 3, "ContainerState"),
        ("ready", 4, TRUTH),
        ("restartCount", 5, NUMBER),
        ("image", 6, TEXT),
        ("imageID", 7, TEXT),
        ("containerID", 8, TEXT),
        ("started", 9, TRUTH),
    ),
    "PodStatus": (
        ("phase", 1, TEXT),
        ("message", 3, TEXT),
        ("reason", 4, TEXT),
        ("startTime", 7, "Time"),
        ("containerStatuses", 8, "[]ContainerStatus"),
        ("initContainerStatuses", 10, "[]ContainerStatus"),
    ),
    "Pod": (("metadata", 1, "ObjectMeta"), ("spec", 2, "PodSpec"), ("status", 3, "PodStatus")),
    "LaunchApplicationRequest": (("pod", 1, "Pod"),),
    "LaunchApplicationResponse": (),
    # Without a grace period, that of the Pod's spec counts. The agent ignores a request for a Pod that it does not run.
    "TerminateApplicationRequest": (("gracePeriodSeconds", 1000, LONG), ("podUID", 1001, TEXT)),
    "TerminateApplicationResponse": (),
    "ApplicationHealthRequest": (),
    "ApplicationHealthResponse": (("podStatus", 1, "PodStatus"),),
}

LOGS_PACKAGE = "poolhouse.agent.v1"
LOGS_SERVICE = f"{LOGS_PACKAGE}.Logs"
LOGS_METHODS: Methods = {"ReadLogs": ("LogsRequest", "[]LogsResponse")}
"""What Poolhouse adds to the agent of a Virtual Kubelet."""

LOGS_MESSAGES: dict[str, tuple[Field, ...]] = {
    "Time": MESSAGES["Time"],
    # The options of `kubectl logs`. A request for a Pod that the agent does not run is answered with NOT_FOUND.
    "LogsRequest": (
        ("podUID", 1, TEXT),
        ("container", 2, TEXT),
        ("follow", 3, TRUTH),
        ("previous", 4, TRUTH),
        ("timestamps", 5, TRUTH),
        ("tailLines", 6, LONG),
        ("limitBytes", 7, LONG),
        ("sinceTime", 8, "Time"),
    ),
    "LogsResponse": (("content", 1, BYTES),),
}

HEALTH_PACKAGE = "grpc.health.v1"
HEALTH_SERVICE = f"{HEALTH_PACKAGE}.Health"
HEALTH_METHODS: Methods = {"Check": ("HealthCheckRequest", "HealthCheckResponse")}
SERVING, NOT_SERVING = 1, 2
"""The standard health service of gRPC, whose enumeration is a number here."""

HEALTH_MESSAGES: dict[str, tuple[Field, ...]] = {
    "HealthCheckRequest": (("service", 1, TEXT),),
    "HealthCheckResponse": (("status", 1, NUMBER),),
}

INLINED = {("Probe", "handler"), ("Volume", "volumeSource"), ("ConfigMapVolumeSource", "localObjectReference")}
"""Fields whose own fields stand, in the JSON of Kubernetes, beside the others of their message."""


@cache
def messages() -> dict[str, Any]:
    return message_classes(PACKAGE, MESSAGES, "proto2")  # like Kubernetes: an absent number is not 0


@cache
def logs_messages() -> dict[str, Any]:
    return message_classes(LOGS_PACKAGE, LOGS_MESSAGES, "proto2")


@cache
def health_messages() -> dict[str, Any]:
    return message_classes(HEALTH_PACKAGE, HEALTH_MESSAGES, "proto3")


SERVICES: dict[str, tuple[Methods, Callable[[], dict[str, Any]]]] = {
    SERVICE: (METHODS, messages),
    LOGS_SERVICE: (LOGS_METHODS, logs_messages),
    HEALTH_SERVICE: (HEALTH_METHODS, health_messages),
}
"""The methods of each service, and the classes of their messages."""


def to_message(name: str, value: Json) -> Any:
    """The message of this name for the JSON of a Kubernetes object. Other fields are ignored."""
    message = messages()[name]()
    _fill(message, name, value)
    return message


def _fill(message: Any, name: str, value: Json) -> None:
    for field, _, kind in MESSAGES[name]:
        one = kind.removeprefix("[]")
        if (name, field) in INLINED:
            inner = to_message(one, value)
            if inner.ListFields():
                getattr(message, field).CopyFrom(inner)
        elif value.get(field) is None:
            continue
        elif one == MAP:
            getattr(message, field).update(value[field])
        elif one in MESSAGES and one != kind:
            getattr(message, field).extend(_value(one, each) for each in value[field])
        elif one in MESSAGES:
            getattr(message, field).CopyFrom(_value(one, value[field]))
            getattr(message, field).SetInParent()
        elif one != kind:
            getattr(message, field).extend(value[field])
        else:
            setattr(message, field, value[field])


def _value(name: str, value: Any) -> Any:
    if name == "IntOrString":
        return messages()[name](**({"type": 1, "strVal": value} if isinstance(value, str) else {"intVal": value}))
    if name == "Time":
        time = datetime.fromisoformat(value)
        return messages()[name](seconds=int(time.timestamp()), nanos=time.microsecond * 1000)
    return to_message(name, value)


MAX_ENTRIES = 1024
"""Most entries of a list or a map that are read. Lists of millions of empty entries would take seconds."""


def from_message(name: str, message: Any) -> dict[str, Any]:
    """The JSON of the Kubernetes object in a message. Bytes stay bytes."""
    found: dict[str, Any] = {}
    present = {field.name for field, _ in message.ListFields()}
    for field, _, kind in MESSAGES[name]:
        if field not in present:
            continue
        one, value = kind.removeprefix("[]"), getattr(message, field)
        if kind.startswith(("[]", MAP)) and len(value) > MAX_ENTRIES:
            raise ValueError(f"{name}.{field} has {len(value)} entries; at most {MAX_ENTRIES} are read")
        if (name, field) in INLINED:
            found |= from_message(one, value)
        elif one == MAP:
            found[field] = dict(value)
        elif one != kind:
            found[field] = [_json(one, each) for each in value]
        else:
            found[field] = _json(one, value)
    return found


def _json(name: str, value: Any) -> Any:
    if name == "IntOrString":
        return value.strVal if value.type == 1 else value.intVal
    if name == "Time":
        # Not by strftime, which writes the year of Go's zero time with one digit.
        return datetime.fromtimestamp(value.seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
    return from_message(name, value) if name in MESSAGES else value
