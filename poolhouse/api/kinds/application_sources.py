"""What the containers of an application get from ConfigMaps and Secrets: variables, volumes and credentials."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.model import ATOMIC_LIST, Model, Rule, Tuple, has, list_map
from poolhouse.api.kinds.names import DNS_LABEL, ObjectName, matching

Text = Annotated[str, Field(max_length=32768)]
Label = Annotated[str, matching(DNS_LABEL, 63, "a name of lower case letters, digits and '-'")]
Path = Annotated[str, Field(min_length=1, max_length=4096)]
EntryKey = Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]
FileMode = Annotated[int, Field(ge=0, le=0o777, json_schema_extra={"format": "int32"})]
VariableName = Annotated[
    str,
    matching(
        "^[-._a-zA-Z][-._a-zA-Z0-9]*$", 253, "the name of an environment variable: letters, digits, '-', '_' and '.'"
    ),
]


def exactly_one_of(*fields: str) -> Rule:
    """A rule that asks for one of two or three sources."""
    names = ", ".join(fields[:-1]) + " and " + fields[-1]
    return Rule(
        cel=f"{' + '.join(f'(has(self.{field}) ? 1 : 0)' for field in fields)} == 1",
        message=f"give exactly one of {names}",
        holds=lambda value: sum(has(value, field) for field in fields) == 1,
    )


class SecretKeyRef(Model):
    """An entry of a Secret of the same namespace. The author of the claim needs the right to get the Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: EntryKey
    """Key of the entry."""
    optional: bool = False
    """Whether the variable is left out if the Secret or the entry does not exist."""


class ConfigMapKeyRef(Model):
    """An entry of a ConfigMap of the same namespace. The author of the claim needs the right to get the ConfigMap."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: EntryKey
    """Key of the entry."""
    optional: bool = False
    """Whether the variable is left out if the ConfigMap or the entry does not exist."""


class VariableSource(Model):
    """Source of the value of an environment variable. Exactly one is required."""

    hints: ClassVar[Mapping[str, str]] = {
        "fieldRef": "an application has value, secretKeyRef and configMapKeyRef only",
        "resourceFieldRef": "an application has value, secretKeyRef and configMapKeyRef only",
    }
    rules: ClassVar[tuple[Rule, ...]] = (exactly_one_of("secretKeyRef", "configMapKeyRef"),)

    secret_key_ref: SecretKeyRef | None = None
    """An entry of a Secret."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """An entry of a ConfigMap."""


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


class SourceRef(Model):
    """A ConfigMap or a Secret of the same namespace. The author of the claim needs the right to get it."""

    name: ObjectName
    """Name of the object."""
    optional: bool = False
    """Whether the object may be missing."""


class Variables(Model):
    """Environment variables for all entries of a ConfigMap or a Secret. Exactly one source is required."""

    rules: ClassVar[tuple[Rule, ...]] = (exactly_one_of("configMapRef", "secretRef"),)

    prefix: Annotated[str, Field(max_length=253)] = ""
    """Text before the name of each variable."""
    config_map_ref: SourceRef | None = None
    """The ConfigMap."""
    secret_ref: SourceRef | None = None
    """The Secret."""


class KeyToPath(Model):
    """An entry that becomes a file of this path."""

    key: EntryKey
    """Key of the entry."""
    path: Path
    """Path of the file in the volume."""
    mode: FileMode | None = None
    """Permissions of the file. Defaults to `defaultMode`."""


Items = Annotated[Tuple[KeyToPath], Field(max_length=64, json_schema_extra=ATOMIC_LIST)]


class ConfigMapVolume(Model):
    """Entries of a ConfigMap of the same namespace as files. The claim's author needs the right to get it."""

    name: ObjectName
    """Name of the ConfigMap."""
    items: Items = ()
    """Entries that become files. Defaults to all entries."""
    default_mode: FileMode = 0o644
    """Permissions of the files."""
    optional: bool = False
    """Whether the ConfigMap and its entries may be missing."""


class SecretVolume(Model):
    """Entries of a Secret of the same namespace as files. The claim's author needs the right to get it."""

    secret_name: ObjectName
    """Name of the Secret."""
    items: Items = ()
    """Entries that become files. Defaults to all entries."""
    default_mode: FileMode = 0o644
    """Permissions of the files."""
    optional: bool = False
    """Whether the Secret and its entries may be missing."""


class EmptyDir(Model):
    """A directory that is empty at first and that the containers share."""

    medium: Literal["", "Memory"] = ""
    """Where the directory is: on the VM's disk, or in its memory."""
    size_limit: Annotated[str, Field(max_length=64)] | None = None
    """Maximum size, as a quantity. For information: no agent needs to keep to it."""


class Volume(Model):
    """A directory that containers mount. Exactly one source is required."""

    hints: ClassVar[Mapping[str, str]] = {
        "persistentVolumeClaim": "the disks of a VM come from the pool's template",
        "hostPath": "an application has emptyDir, configMap and secret only",
        "projected": "an application has emptyDir, configMap and secret only",
    }
    rules: ClassVar[tuple[Rule, ...]] = (exactly_one_of("emptyDir", "configMap", "secret"),)

    name: Label
    """Name of the volume."""
    empty_dir: EmptyDir | None = None
    """A directory that is empty at first."""
    config_map: ConfigMapVolume | None = None
    """Entries of a ConfigMap."""
    secret: SecretVolume | None = None
    """Entries of a Secret."""


class VolumeMount(Model):
    """The place of a volume in a container."""

    name: Label
    """Name of the volume."""
    mount_path: Path
    """Path in the container."""
    sub_path: Annotated[str, Field(max_length=4096)] = ""
    """Path in the volume that is mounted. Defaults to the whole volume."""
    read_only: bool = False
    """Whether the container can only read the volume."""


class PullSecret(Model):
    """A Secret with the credentials of an image registry. The author of the claim needs the right to get it."""

    name: ObjectName
    """Name of the Secret, of the type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg."""


Environment = Annotated[Tuple[Variable], Field(max_length=256, json_schema_extra=list_map("name"))]
EnvironmentSources = Annotated[Tuple[Variables], Field(max_length=32, json_schema_extra=ATOMIC_LIST)]
Mounts = Annotated[Tuple[VolumeMount], Field(max_length=64, json_schema_extra=list_map("mountPath"))]
Volumes = Annotated[Tuple[Volume], Field(max_length=64, json_schema_extra=list_map("name"))]
PullSecrets = Annotated[Tuple[PullSecret], Field(max_length=16, json_schema_extra=list_map("name"))]

SOURCE_FIELDS: dict[Literal["ConfigMap", "Secret"], tuple[tuple[str, ...], ...]] = {
    "ConfigMap": (
        ("containers", "env", "valueFrom", "configMapKeyRef", "name"),
        ("containers", "envFrom", "configMapRef", "name"),
        ("volumes", "configMap", "name"),
    ),
    "Secret": (
        ("containers", "env", "valueFrom", "secretKeyRef", "name"),
        ("containers", "envFrom", "secretRef", "name"),
        ("volumes", "secret", "secretName"),
        ("imagePullSecrets", "name"),
    ),
}
"""The fields of an application that name ConfigMaps and Secrets. `containers` stands for initContainers too."""


def sources(application: Any, kind: Literal["ConfigMap", "Secret"]) -> Iterator[tuple[str, str]]:
    """The path of each field of an application that names an object of this kind, and the name."""
    for field in SOURCE_FIELDS[kind]:
        for path in (("initContainers", *field[1:]), field) if field[0] == "containers" else (field,):
            yield from _values(application, path, "")


def _values(value: Any, path: tuple[str, ...], here: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _values(each, path, f"{here}[{index}]")
    elif not path:
        if isinstance(value, str) and value:
            yield here, value
    elif isinstance(value, dict):
        yield from _values(value.get(path[0]), path[1:], f"{here}.{path[0]}")


def source_names(application: Json, kind: Literal["ConfigMap", "Secret"]) -> tuple[str, ...]:
    """Names of the ConfigMaps or Secrets, each once."""
    return tuple(dict.fromkeys(name for _, name in sources(application, kind)))
