"""Makes the CustomResourceDefinition of a kind."""

from collections.abc import Iterable

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import KINDS, meta
from poolhouse.api.kinds.kind import Column, Kind
from poolhouse.api.kinds.metav1 import NOT_OBSERVED, StatusModel
from poolhouse.api.kinds.schema import rendered, structural

_API_VERSION = "API group and version of the object."
_KIND = "Kind of the object."


def crd(kind: Kind) -> Json:
    names: Json = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.singular}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name, "labels": {meta.PART_OF: meta.POOLHOUSE}},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, version) for version in kind.versions],
        },
    }


def crds(kinds: Iterable[Kind] = KINDS) -> list[Json]:
    return [crd(kind) for kind in kinds]


def _version(kind: Kind, version: str) -> Json:
    found: Json = {
        "name": version,
        "served": True,
        "storage": version == kind.versions[0],
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": rendered(object_schema(kind))},
    }
    subresources: Json = {}
    if kind.status_subresource:
        subresources["status"] = {}
    if kind.scale is not None:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec,
            "statusReplicasPath": kind.scale.status,
            **({"labelSelectorPath": kind.scale.selector} if kind.scale.selector else {}),
        }
    if subresources:
        found["subresources"] = subresources
    return found


def object_schema(kind: Kind) -> Json:
    """The schema of the whole object. Kubernetes adds the schema of the metadata."""
    properties: Json = {
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": {"type": "object"},
        "spec": kind.spec_schema,
    }
    if kind.status is not None:
        properties["status"] = structural(kind.status, defaults=False)
        if issubclass(kind.status, StatusModel):
            properties["status"] = {**properties["status"], "default": {"observedGeneration": NOT_OBSERVED}}
    schema: Json = {"type": "object", "description": kind.doc, "properties": properties}
    if kind.spec_required:
        schema["required"] = ["spec"]
    if kind.rules:
        schema["x-rules"] = kind.rules
    return schema


def _column(column: Column) -> Json:
    found: Json = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        found["description"] = column.description
    if column.wide:
        found["priority"] = 1
    return found
