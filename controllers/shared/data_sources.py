"""The images that DataSources of a template point at.

CDI's DataImportCron changes the source of a DataSource when it has imported a new image. With `trackDataSources`, these
sources belong to the revision of a pool, and to the template of a warm pool. A new image is then an update like any
other. VMs get the source in place of the `sourceRef`, as KubeVirt resolves it.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from controllers.shared.vmi import text
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.runtime.resource import Key, Resource

DATA_SOURCES = Resource("cdi.kubevirt.io", "v1beta1", "datasources", "DataSource")

Sources = Mapping[str, Json]
"""For names in dataVolumeTemplates, the `source` of a DataVolume: a PersistentVolumeClaim or a VolumeSnapshot."""


@dataclass(frozen=True)
class DataSource:
    namespace: str
    name: str
    kind: str = ""
    """`pvc` or `snapshot`; empty if the DataSource does not point at one, or is not ready"""
    source_namespace: str = ""
    source_name: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def source(self) -> Json | None:
        if not self.kind:
            return None
        return {self.kind: {"namespace": self.source_namespace, "name": self.source_name}}


def parse_data_source(document: Json) -> DataSource:
    metadata, status = document["metadata"], document.get("status") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    conditions = {text(each, "type"): text(each, "status") for _, each in entries(status, "conditions")}
    # The status has the source behind a chain of DataSources.
    for found in (at(status, "source"), at(document, "spec", "source")):
        for kind in ("pvc", "snapshot"):
            if source := text(found, kind, "name"):
                if conditions.get("Ready", "True") != "True":
                    return DataSource(namespace, name)
                return DataSource(namespace, name, kind, text(found, kind, "namespace") or namespace, source)
    return DataSource(namespace, name)


def changed_sources(
    keys: Mapping[str, Key], find: Callable[[Key], DataSource | None], before: Sources
) -> dict[str, Key]:
    """The tracked entries whose DataSource points at something new."""
    views = {entry: find(key) for entry, key in keys.items()}
    return {
        entry: keys[entry]
        for entry, view in views.items()
        if view is not None and view.source not in (None, before.get(entry))
    }


def resolve_sources(
    keys: Mapping[str, Key], find: Callable[[Key], DataSource | None], before: Sources, refused: Container[str] = ()
) -> Sources:
    """The sources of the tracked entries. While a DataSource cannot be read or is not ready, or its new source is
    refused, its last source holds."""
    found: dict[str, Json] = {}
    for entry, key in keys.items():
        view = find(key) if entry not in refused else None
        if source := (view.source if view is not None else None) or before.get(entry):
            found[entry] = source
    return found


def pinned(template: Json, sources: Sources) -> Json:
    """The VM spec's dataVolumeTemplates with these sources in place of the references. Changes the template."""
    for _, each in entries(template, "dataVolumeTemplates"):
        source = sources.get(text(each, "metadata", "name"))
        if source is not None and typed(dict, each, "spec", "sourceRef") is not None:
            spec: dict[str, Any] = each["spec"]
            each["spec"] = {key: value for key, value in spec.items() if key != "sourceRef"} | {"source": source}
    return template


def describe_changes(before: Sources, now: Sources) -> str:
    """What has changed from one revision to another, or ""."""
    found = (
        f"disk {entry}: its DataSource points at {_name(source)} now"
        for entry, source in now.items()
        if before.get(entry) not in (None, source)
    )
    return "; ".join(found)


def _name(source: Json) -> str:
    kind, found = next(iter(source.items()))
    return f"{kind} {found['namespace']}/{found['name']}"
