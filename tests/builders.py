"""Builds objects of the Kubernetes API for tests. A test gives only what matters to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from poolhouse.api.apimachinery.owner_references import controller_reference

Json = dict[str, Any]


class NamedKind(Protocol):
    """A Resource, a ResourceType or a Kind."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...


def manifest(
    of: NamedKind,
    name: str | None = None,
    spec: Json | None = None,
    namespace: str | None = None,
    *,
    status: Json | None = None,
    **metadata: Any,
) -> Json:
    """An object of this kind. Arguments that are None give no field."""
    named = {"name": name, "namespace": namespace, **metadata}
    parts = {"spec": spec, "status": status}
    return {
        "apiVersion": of.api_version,
        "kind": of.kind,
        "metadata": {field: value for field, value in named.items() if value is not None},
        **{part: value for part, value in parts.items() if value is not None},
    }


def owned_by(of: NamedKind, name: str, uid: str) -> list[Json]:
    """The owner references of an object whose controller is this one."""
    return [controller_reference(of.api_version, of.kind, name, uid)]


def vm_spec(vmi: Json | None = None, *, labels: Json | None = None, **spec: Any) -> Json:
    """The spec of a VM that KubeVirt keeps running, unless the test gives `running` or another run strategy. `vmi` is
    the spec of its VMI, and `labels` are those of the VMI."""
    strategy = {} if "running" in spec else {"runStrategy": "Always"}
    metadata = {} if labels is None else {"metadata": {"labels": labels}}
    return {**strategy, **spec, "template": {**metadata, "spec": vmi_spec({}, memory="64Mi") if vmi is None else vmi}}


def vmi_spec(volumes: Mapping[str, Json], nics: Iterable[str] = (), memory: str = "128Mi") -> Json:
    """The spec of a VMI with a virtio disk for each volume, and NICs on the pod network."""
    disks = [{"name": name, "disk": {"bus": "virtio"}} for name in volumes]
    interfaces = [{"name": name, "masquerade": {}} for name in nics]
    return {
        "domain": {"memory": {"guest": memory}, "devices": {"disks": disks, "interfaces": interfaces}},
        "networks": [{"name": name, "pod": {}} for name in nics],
        "volumes": [{"name": name, **source} for name, source in volumes.items()],
    }
