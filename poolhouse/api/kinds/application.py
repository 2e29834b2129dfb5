"""What a claim runs in its VM: the part of a PodSpec that an agent in a VM can carry out."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.ec2 import Port
from poolhouse.api.kinds.model import ATOMIC_LIST, Model, Rule, Tuple, has, list_map
from poolhouse.api.kinds.names import DNS_LABEL, Image, ObjectName, matching

Text = Annotated[str, Field(max_length=32768)]
Arguments = Annotated[Tuple[Text], Field(max_length=256, json_schema_extra=ATOMIC_LIST)]
ContainerName = Annotated[
    str,
    matching(DNS_LABEL, 63, "a name of lower case letters, digits and '-'"),
]
VariableName = Annotated[
    str,
    matching(
        "^[-._a-zA-Z][-._a-zA-Z0-9]*$", 253, "the name of an environment variable: letters, digits, '-', '_' and '.'"
    ),
]


class SecretKeyRef(Model):
    """An entry of a Secret of the same namespace. The author of the claim needs the right to get the Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]
    """Key of the entry."""
    optional: bool = False
    """Whether the variable is left out if the Secret or the entry does not exist."""


class VariableSource(Model):
    """Source of the value of an environment variable."""

    hints: ClassVar[Mapping[str, str]] = {
        "configMapKeyRef": "an application has values and secretKeyRef only",
        "fieldRef": "an application has values and secretKeyRef only",
    }

    secret_key_ref: SecretKeyRef
    """An entry of a Secret."""


class Variable(Model):
    """An environment variable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="give value or valueFrom, not both",
            holds=lambda value: not (has(value, "value") and has(value, "valueFrom")),
        ),
    )

    name: VariableName
    """Name of the variable."""
    value: Text | None = None
    """Value of the variable."""
    value_from: VariableSource | None = None
    """Source of the value."""


class ContainerPort(Model):
    """A port on which the application listens."""

    container_port: Port
    """Number of the port."""
    name: Annotated[str, Field(min_length=1, max_length=15)] | None = None
    """Name of the port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port."""


class Container(Model):
    """A program, or a container if it has an image."""

    name: ContainerName
    """Name of the container."""
    image: Image | None = None
    """Image of the container. The agent decides what it does with it."""
    command: Arguments = ()
    """Program and its first arguments. Defaults to the image's."""
    args: Arguments = ()
    """Further arguments. Defaults to the image's."""
    working_dir: Annotated[str, Field(max_length=4096)] | None = None
    """Directory in which the program starts."""
    env: Annotated[Tuple[Variable], Field(max_length=256, json_schema_extra=list_map("name"))] = ()
    """Environment variables."""
    ports: Annotated[Tuple[ContainerPort], Field(max_length=64, json_schema_extra=ATOMIC_LIST)] = ()
    """Ports on which the program listens, for information."""


def _has_a_program(value: Json) -> bool:
    containers = value.get("containers")
    return not isinstance(containers, list) or all(
        not isinstance(each, dict) or has(each, "image") or bool(each.get("command")) for each in containers
    )


class Application(Model):
    """Containers that run in the VM, as in the spec of a Pod."""

    hints: ClassVar[Mapping[str, str]] = {
        "command": "write it in spec.application.containers[0].command",
        "image": "write it in spec.application.containers[0].image",
        "initContainers": "an application has containers only",
        "volumes": "an application has no volumes; the VM's disks come from the pool",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.containers.all(c, has(c.image) || (has(c.command) && size(c.command) > 0))",
            message="each container needs an image or a command",
            holds=_has_a_program,
            field=".containers",
        ),
    )

    containers: Annotated[Tuple[Container], Field(min_length=1, max_length=16, json_schema_extra=list_map("name"))]
    """Programs or containers that run together."""
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """When a program that has ended is started again."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the Secrets that the environment variables come from, each once."""
        found = (v.value_from.secret_key_ref.name for c in self.containers for v in c.env if v.value_from)
        return tuple(dict.fromkeys(found))
