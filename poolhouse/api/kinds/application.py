"""What a claim runs in its VM: the part of a PodSpec that an agent in a VM can carry out."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.application_sources import (
    Environment,
    EnvironmentSources,
    Label,
    Mounts,
    PullSecrets,
    Text,
    Volumes,
    exactly_one_of,
    source_names,
)
from poolhouse.api.kinds.ec2 import Port
from poolhouse.api.kinds.model import ATOMIC_LIST, Count, IntOrString, Model, Rule, Tuple, has, list_map
from poolhouse.api.kinds.names import Image

Arguments = Annotated[Tuple[Text], Field(max_length=256, json_schema_extra=ATOMIC_LIST)]
PortName = Annotated[str, Field(min_length=1, max_length=15)]
PortOrName = Annotated[
    int | str,
    IntOrString(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "a port from 1 to 65535, or the name of a port of the container",
        minimum=1,
        maximum=65535,
        max_length=15,
    ),
]


class ContainerPort(Model):
    """A port on which the application listens."""

    container_port: Port
    """Number of the port."""
    name: PortName | None = None
    """Name of the port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port."""


class ExecAction(Model):
    """A command that succeeds when it exits with 0."""

    command: Arguments = ()
    """Program and its arguments."""


class HTTPHeader(Model):
    """A header of a request."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the header."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the header."""


class HTTPGetAction(Model):
    """A request that succeeds when the response has a status code from 200 to 399."""

    port: PortOrName
    """Number or name of the port."""
    path: Annotated[str, Field(max_length=1024)] = "/"
    """Path of the request."""
    host: Annotated[str, Field(max_length=253)] | None = None
    """Host of the request. Defaults to the VM."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """Scheme of the request."""
    http_headers: Annotated[Tuple[HTTPHeader], Field(max_length=32, json_schema_extra=ATOMIC_LIST)] = ()
    """Headers of the request."""


class TCPSocketAction(Model):
    """Succeeds when the port accepts a connection."""

    port: PortOrName
    """Number or name of the port."""
    host: Annotated[str, Field(max_length=253)] | None = None
    """Host of the connection. Defaults to the VM."""


class Probe(Model):
    """A check of a container, which the agent in the VM performs. Exactly one action is required."""

    hints: ClassVar[Mapping[str, str]] = {"grpc": "a probe has exec, httpGet and tcpSocket only"}
    rules: ClassVar[tuple[Rule, ...]] = (exactly_one_of("exec", "httpGet", "tcpSocket"),)

    exec: ExecAction | None = None
    """A command in the container."""
    http_get: HTTPGetAction | None = None
    """An HTTP request."""
    tcp_socket: TCPSocketAction | None = None
    """A connection."""
    initial_delay_seconds: Count = 0
    """Seconds from the start of the container to the first check."""
    timeout_seconds: Annotated[Count, Field(ge=1)] = 1
    """Seconds after which a check without an answer fails."""
    period_seconds: Annotated[Count, Field(ge=1)] = 10
    """Seconds between two checks."""
    success_threshold: Annotated[Count, Field(ge=1)] = 1
    """Consecutive successes after which a probe that failed has succeeded."""
    failure_threshold: Annotated[Count, Field(ge=1)] = 3
    """Consecutive failures after which the probe has failed."""


class InitContainer(Model):
    """A program that ends before the containers start, or a container if it has an image."""

    hints: ClassVar[Mapping[str, str]] = {
        "lifecycle": "an application has no lifecycle hooks",
        "resources": "the resources are those of the VM; choose another pool or spec.overrides.instancetype",
        "securityContext": "the VM is the boundary; an application has no securityContext",
    }

    name: Label
    """Name of the container."""
    image: Image | None = None
    """Image of the container. The agent decides what it does with it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled. Defaults to Always for an image with the tag `latest` or none, else IfNotPresent."""
    command: Arguments = ()
    """Program and its first arguments. Defaults to the image's."""
    args: Arguments = ()
    """Further arguments. Defaults to the image's."""
    working_dir: Annotated[str, Field(max_length=4096)] | None = None
    """Directory in which the program starts."""
    env: Environment = ()
    """Environment variables."""
    env_from: EnvironmentSources = ()
    """ConfigMaps and Secrets whose entries become environment variables. Those of `env` have precedence."""
    ports: Annotated[Tuple[ContainerPort], Field(max_length=64, json_schema_extra=ATOMIC_LIST)] = ()
    """Ports on which the program listens, for information."""
    volume_mounts: Mounts = ()
    """Volumes that the container sees."""


class Container(InitContainer):
    """A program, or a container if it has an image."""

    liveness_probe: Probe | None = None
    """Restarts the container when it fails."""
    readiness_probe: Probe | None = None
    """Whether the container is ready."""
    startup_probe: Probe | None = None
    """Delays the other probes until it succeeds."""


def _need_a_program(field: str) -> Rule:
    def holds(value: Json) -> bool:
        given = value.get(field)
        return not isinstance(given, list) or all(
            not isinstance(each, dict) or has(each, "image") or bool(each.get("command")) for each in given
        )

    absent = "" if field == "containers" else f"!has(self.{field}) || "
    return Rule(
        cel=f"{absent}self.{field}.all(c, has(c.image) || (has(c.command) && size(c.command) > 0))",
        message="each container needs an image or a command",
        holds=holds,
        field=f".{field}",
    )


MetadataKey = Annotated[str, Field(min_length=1, max_length=317)]


class Application(Model):
    """Containers that run in the VM, as in the spec of a Pod."""

    hints: ClassVar[Mapping[str, str]] = {
        "command": "write it in spec.application.containers[0].command",
        "image": "write it in spec.application.containers[0].image",
        "hostNetwork": "an application has the VM's network in any case",
        "serviceAccountName": "an application has no credentials of the cluster",
    }
    rules: ClassVar[tuple[Rule, ...]] = (_need_a_program("containers"), _need_a_program("initContainers"))

    labels: Annotated[dict[MetadataKey, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Labels of the application, for the agent."""
    annotations: Annotated[dict[MetadataKey, Text], Field(max_length=64)] = Field(default_factory=dict)
    """Annotations of the application, for the agent."""
    init_containers: Annotated[Tuple[InitContainer], Field(max_length=16, json_schema_extra=list_map("name"))] = ()
    """Programs or containers that run one after the other before the others start."""
    containers: Annotated[Tuple[Container], Field(min_length=1, max_length=16, json_schema_extra=list_map("name"))]
    """Programs or containers that run together."""
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """When a program that has ended is started again."""
    termination_grace_period_seconds: Annotated[Count, Field(le=3600)] = 30
    """Seconds from the end of the claim until the application is killed."""
    image_pull_secrets: PullSecrets = ()
    """Secrets with the credentials of image registries."""
    volumes: Volumes = ()
    """Directories that the containers mount."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the Secrets that the application uses, each once."""
        return source_names(self.json(), "Secret")

    @property
    def config_maps(self) -> tuple[str, ...]:
        """Names of the ConfigMaps that the application uses, each once."""
        return source_names(self.json(), "ConfigMap")
