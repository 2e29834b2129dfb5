"""The DataSources that the template of a VM names."""

from poolhouse.api.apimachinery.unstructured import Json, entries, typed


def references(template: Json | None, namespace: str) -> dict[str, tuple[str, str]]:
    """Namespace and name of each DataSource, by name in dataVolumeTemplates. `namespace` is that of the VM."""
    found = {}
    for _, each in entries(template, "spec", "dataVolumeTemplates"):
        reference = typed(dict, each, "spec", "sourceRef") or {}
        name = typed(str, reference, "name")
        if reference.get("kind") == "DataSource" and name:
            disk = typed(str, each, "metadata", "name") or ""
            found[disk] = (typed(str, reference, "namespace") or namespace, name)
    return found
