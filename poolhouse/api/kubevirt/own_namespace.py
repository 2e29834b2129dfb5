"""Spells references into the namespace of the VM without the namespace, which means the same to KubeVirt and CDI."""

from typing import Any

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.meaning import fields_of

_NAMESPACES = frozenset(
    {
        ("CDIDataVolumeSourcePVC", "namespace"),
        ("CDIDataVolumeSourceRef", "namespace"),
        ("CDIDataVolumeSourceSnapshot", "namespace"),
        ("TypedObjectReference", "namespace"),
    }
)
"""fields that mean the VM's namespace if they are absent"""
_NAMES = frozenset({("MultusNetwork", "networkName")})
"""names that may follow a namespace and a slash"""


def without_own_namespace(value: Any, type_name: str, namespace: str) -> Any:
    """The value without this namespace where its absence says the same. `type_name` is the type of the value in
    poolhouse/api/kubevirt/meaning.py. The value itself stays as it is."""
    match value:
        case list():
            return [without_own_namespace(each, type_name, namespace) for each in value]
        case dict() if namespace and type_name:
            fields = fields_of(type_name)
            found: Json = {}
            for name, each in value.items():
                if (type_name, name) in _NAMES and isinstance(each, str):
                    found[name] = each.removeprefix(f"{namespace}/")
                elif each != namespace or (type_name, name) not in _NAMESPACES:
                    inner = fields[name].type if name in fields else ""
                    found[name] = without_own_namespace(each, inner, namespace)
            # Without a selector, an absent list of namespaces is the namespace of the VM.
            without_selector = type_name == "PodAffinityTerm" and found.get("namespaceSelector") is None
            if without_selector and found.get("namespaces") == [namespace]:
                del found["namespaces"]
            return found
    return value
