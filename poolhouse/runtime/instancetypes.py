"""Reads the instance type and the preference that a VM names: the object, or the revision of it that KubeVirt keeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, NotFound
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, Resource

GROUP, VERSION = "instancetype.kubevirt.io", "v1beta1"
REVISION_OF = f"{GROUP}/object-name"
"""the label of a ControllerRevision with the name of its instance type or preference"""
RECENT_SECONDS = 1.0
"""Time for which an object that was read is used again, for the VMs of a pool. KubeVirt also reads it a moment after
the VM is created."""
_MAX_RECENT = 256


def _resource(kind: str, *, namespaced: bool) -> Resource:
    return Resource(GROUP, VERSION, f"{kind.lower()}s", kind, namespaced=namespaced)


RESOURCES: Mapping[str, tuple[Resource, Resource]] = {
    "instancetype": (
        _resource("VirtualMachineInstancetype", namespaced=True),
        _resource("VirtualMachineClusterInstancetype", namespaced=False),
    ),
    "preference": (
        _resource("VirtualMachinePreference", namespaced=True),
        _resource("VirtualMachineClusterPreference", namespaced=False),
    ),
}
"""By the field of a VM, the namespaced resource and the one of the cluster, which is KubeVirt's default."""


class Unreadable(Exception):
    """The instance type or the preference is unknown. The message says why."""


@dataclass
class InstancetypeReader:
    """Reads by name with each call, at most once a second for the same object. Nothing is retried: without the CRDs of
    KubeVirt's instance types, a VM cannot start either."""

    api: Api
    now: Callable[[], float]
    _recent: dict[tuple[str, str, str], tuple[float, Json]] = field(default_factory=dict)

    async def read(self, vm: Json, namespace: str) -> Json:
        """`instancetype` and `preference`, the specs that the VM names, and `unread`, which says why one is missing."""
        found: Json = {}
        problems = []
        for name in RESOURCES:
            if at(vm, "spec", name) is not None:
                try:
                    found[name] = await self._spec(vm, name, namespace)
                except Unreadable as error:
                    problems.append(str(error))
        return {**found, "unread": "; ".join(problems)} if problems else found

    async def _spec(self, vm: Json, name: str, namespace: str) -> Json:
        matcher = typed(dict, vm, "spec", name) or {}
        if not matcher.get("name"):
            raise Unreadable(f"spec.{name} has no name yet; KubeVirt infers it from a volume")
        resource = find_resource(name, str(matcher.get("kind") or ""))
        revision = await self._revision(vm, name, namespace)
        document = revision or await self.get(resource, namespace, str(matcher["name"]))
        spec = typed(dict, document, "spec")
        if spec is None or not str(document.get("apiVersion")).endswith(f"/{VERSION}"):
            raise Unreadable(f"the {resource.kind} {matcher['name']} is not of {GROUP}/{VERSION}")
        return spec

    async def _revision(self, vm: Json, name: str, namespace: str) -> Json | None:
        """The revision that KubeVirt uses at the next start; None if it has none for the VM's name."""
        given = at(vm, "spec", name, "revisionName")
        kept = at(vm, "status", f"{name}Ref", "controllerRevisionRef", "name")
        if not given and not kept:
            return None
        revision = await self.get(CONTROLLER_REVISIONS, namespace, str(given or kept))
        label = at(revision, "metadata", "labels", REVISION_OF)
        if not given and label != at(vm, "spec", name, "name"):
            return None
        return typed(dict, revision, "data")

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """The object of that name. Raises `Unreadable`."""
        key = (resource.plural, namespace if resource.namespaced else "", name)
        began, known = self._recent.get(key, (float("-inf"), {}))
        if self.now() - began < RECENT_SECONDS:
            return known
        began = self.now()
        try:
            document = await self.api.get(resource, namespace, name)
        except NotFound as error:
            raise Unreadable(f"the {resource.kind} {name} does not exist") from error
        except (ApiError, ValueError) as error:
            raise Unreadable(f"the {resource.kind} {name} cannot be read: {error}") from error
        if len(self._recent) >= _MAX_RECENT:
            self._recent.clear()
        self._recent[key] = began, document
        return document


def find_resource(name: str, kind: str) -> Resource:
    """The resource of a kind, which KubeVirt accepts in lower case and in the plural too."""
    of_namespace, of_cluster = RESOURCES[name]
    if not kind:
        return of_cluster
    for resource in (of_namespace, of_cluster):
        if kind.lower() in (resource.kind.lower(), resource.plural):
            return resource
    raise Unreadable(f"spec.{name}.kind is {kind!r}, which is neither {of_namespace.kind} nor {of_cluster.kind}")
