"""The ControllerRevisions of a pool that goes back to KubeVirt."""

from collections.abc import Iterator

from controllers.pool.import_return_check import stale_revisions
from controllers.pool.import_steps import Observed, Write, create_revision, kubevirt_owner
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import CONTROLLER_REVISIONS


def create_revisions(observed: Observed, source: Json, data: Json) -> Iterator[Write]:
    """Deletes what KubeVirt's earlier pool has left, and creates the revisions of the new one."""
    for each in stale_revisions(observed):
        why = "KubeVirt would take it for the template of a later generation"
        yield Write("delete", CONTROLLER_REVISIONS, each["metadata"]["name"], why, {}, each["metadata"]["uid"])
    owner = kubevirt_owner(source)
    known = {each["metadata"]["name"]: each for each in observed.revisions}
    for label, each in sorted(data["revisions"].items(), key=lambda entry: int(entry[1]["revision"])):
        name = each["name"]
        if (found := known.get(name)) is not None:
            if (controller_of(found) or {}).get("uid") == owner["uid"]:
                continue
            yield Write("delete", CONTROLLER_REVISIONS, name, "a way back has left it", {}, found["metadata"]["uid"])
        # KubeVirt compares this template with that of the pool, as the API server has stored it.
        template, why = each["data"] or source["spec"], f"the template of revision {label}"
        yield create_revision(observed, name, template, why, number=each["revision"], owner=owner)
