"""Whether a pool of KubeVirt can be imported."""

from collections.abc import Iterator

from controllers.pool.import_steps import CannotImport, Observed
from controllers.pool.kubevirt_pools import REVISION_LABEL, Conversion, convert
from controllers.shared.names import ordinal_of
from poolhouse.api.apimachinery.unstructured import Json, at


def check(observed: Observed, drops: tuple[str, ...]) -> Conversion:
    """What an import would change. Raises `CannotImport` with all problems."""
    source = observed.source
    if source is None and (why := observed.not_served):
        raise CannotImport(why)
    if source is None:
        raise CannotImport(f"there is no pool {observed.name} of KubeVirt in namespace {observed.namespace}")
    found = convert(source, drops)
    problems = [f"{each}; drop it with --drop {each.path.removeprefix('spec.')}" for each in found.refusals]
    problems += [f"--drop {each}: no field of this name stops the import" for each in found.unused_drops()]
    if observed.target is not None:
        problems.append(f"Poolhouse has a pool {observed.name} in namespace {observed.namespace} already")
    if source["metadata"].get("deletionTimestamp"):
        problems.append(f"the pool {observed.name} of KubeVirt is being deleted")
    problems += _unknown_members(observed, source)
    if problems:
        raise CannotImport(*problems)
    return found


def _unknown_members(observed: Observed, source: Json) -> Iterator[str]:
    """VMs that cannot become members without a restart."""
    known = {each["metadata"]["name"] for each in observed.revisions}
    for vm in observed.owned(source["metadata"]["uid"]):
        name = vm["metadata"]["name"]
        if ordinal_of(observed.name, name) is None:
            yield f"VM {name}: the name does not match {observed.name}-NUMBER"
        if vm["metadata"].get("deletionTimestamp"):
            yield f"VM {name}: it is being deleted; wait until it is gone"
        for kind, document in (("VM", vm), ("VMI", observed.vmis_by_name.get(name))):
            if document is not None and (revision := revision_of(document)) not in known:
                missing = f"the revision {revision} does not exist" if revision else f"it has no label {REVISION_LABEL}"
                yield f"{kind} {name}: {missing}, so its template is unknown and the new pool would restart it"


def revision_of(document: Json) -> str:
    return str(at(document, "metadata", "labels", REVISION_LABEL) or "")
