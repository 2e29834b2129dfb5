"""What the way back from a completed import would do, and all that stops it."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controllers.pool.import_return_spec import kubevirt_spec, same_template
from controllers.pool.import_steps import CannotImport, Observed, record_name, vmis
from controllers.pool.kubevirt_pools import Change, pool_metadata
from controllers.pool.pools import Pool, parse_pool
from controllers.shared.names import MAX_NAME, ordinal_of
from controllers.shared.vm import disk_names, is_persistent_state
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import run_strategy

NOTES = (
    "the VMs lose the labels, annotations and finalizers of Poolhouse",
    "the pool of Poolhouse is deleted, with its ControllerRevisions, its PodDisruptionBudget and its snapshots of VMs",
)


@dataclass(frozen=True)
class Return:
    data: Json
    """the data of the record, with the spec of KubeVirt's pool"""
    changes: tuple[Change, ...]
    """the fields of KubeVirt's pool that differ from before the import"""
    notes: tuple[str, ...]
    """what happens to VMs and disks"""


def check_return(observed: Observed, drops: Iterable[str] = ()) -> Return:
    """Raises `CannotImport` with all problems."""
    target, record = observed.target, observed.record
    if target is None or record is None:
        raise CannotImport(f"Poolhouse has no imported pool {observed.name} in namespace {observed.namespace}")
    pool = parse_pool(target)
    if not isinstance(pool, Pool):
        raise CannotImport(f"the pool is invalid: {pool.problem}")
    problems = [*_not_possible(observed, target, record)]
    spec, changes, found = kubevirt_spec(pool, target, record["data"], tuple(drops))
    problems += found
    revisions, found = _revisions(observed, pool, spec)
    problems += found
    notes = [*NOTES]
    notes += [f"ControllerRevision {each['metadata']['name']}: deleted" for each in stale_revisions(observed)]
    for problem, note in (*_members(observed, pool, spec), *_disks(observed, pool)):
        problems += [problem] if problem else []
        notes += [note] if note else []
    if problems:
        raise CannotImport(*problems)
    data = {
        "uid": pool.uid,
        "record": record["metadata"]["uid"],
        "metadata": pool_metadata(record["data"]),
        "spec": spec,
        "revisions": revisions,
        "disks": dict(_freed(observed, pool)),
        "poolhouse": target["spec"],
    }
    return Return(data, tuple(changes), tuple(notes))


def _not_possible(observed: Observed, target: Json, record: Json) -> Iterator[str]:
    name, owners = observed.name, record["metadata"].get("ownerReferences") or ()
    if observed.not_served:
        yield observed.not_served
    if target["metadata"]["uid"] not in {each.get("uid") for each in owners}:
        yield f"the pool {name} of Poolhouse is not the imported one: it does not own {record_name(name)}"
    if target["metadata"].get("deletionTimestamp"):
        yield f"the pool {name} of Poolhouse is being deleted"
    if observed.source is not None:
        yield f"KubeVirt has a pool {name} in namespace {observed.namespace} already"


def _revisions(observed: Observed, pool: Pool, spec: Json) -> tuple[Json, list[str]]:
    """KubeVirt's revisions by the labels of ours: the name, and the data, which is null for the template of the pool.

    KubeVirt takes a revision with the name `POOL-GENERATION` for that of the generation, so these are named otherwise.
    """
    found: Json = {}
    used = {label for each in _documents(observed, pool) for label in (our_revision(each), next_revision(each))}
    for label, each in _stored(observed, pool).items():
        if label not in used:
            continue
        unique = hashlib.sha256(f"{pool.uid} {label}".encode()).hexdigest()[:6]
        name = f"{pool.name}-p{unique}-{each['revision']}"
        template = each["data"].get("template") or {}
        current = same_template(template, pool.spec.template, pool)
        found[label] = {
            "name": name,
            "data": None if current else {**spec, "virtualMachineTemplate": template},
            "revision": each["revision"],
        }
    too_long = next((each["name"] for each in found.values() if len(each["name"]) > MAX_NAME), "")
    problems = [f"the name {observed.name} is too long for a label with KubeVirt's revision {too_long}"]
    return found, problems if too_long else []


def stale_revisions(observed: Observed) -> list[Json]:
    """What KubeVirt's earlier pool has left. KubeVirt finds revisions by name, so it would take `POOL-3` for the
    template of the new pool's third generation."""
    uids = {None, observed.record["data"]["uid"] if observed.record is not None else None}
    return [
        each
        for each in observed.revisions
        if ordinal_of(observed.name, each["metadata"]["name"]) is not None
        and "virtualMachineTemplate" in (each.get("data") or {})
        and (controller_of(each) or {}).get("uid") in uids
    ]


def _members(observed: Observed, pool: Pool, spec: Json) -> Iterator[tuple[str, str]]:
    """For each VM, what stops the way back, and what happens to it besides the change of its controller."""
    templates = {label: each["data"].get("template") or {} for label, each in _stored(observed, pool).items()}
    current = {label for label, template in templates.items() if same_template(template, pool.spec.template, pool)}
    members = observed.owned(pool.uid)
    if (excess := len(members) - pool.spec.replicas) > 0:
        yield f"the pool has {excess} more VMs than replicas, which KubeVirt would delete; wait for the scale-in", ""
    for vm in sorted(members, key=lambda each: str(each["metadata"]["name"])):
        name = vm["metadata"]["name"]
        documents = [("VM", vm)]
        if (vmi := observed.vmis_by_name.get(name)) is not None:
            documents.append(("VMI", vmi))
        yield from ((f"VM {name}: {problem}", "") for problem in _why_not(vm, pool, spec, templates))
        unknown = [kind for kind, each in documents if our_revision(each) not in templates]
        yield from (
            (
                f"{kind} {name}: no stored revision belongs to its label {meta.REVISION}, so KubeVirt would restart it",
                "",
            )
            for kind in unknown
        )
        if not unknown and any(our_revision(each) not in current for _, each in documents):
            yield _outdated(vm, spec, pool)
        if at(vm, "metadata", "annotations", meta.SCALE_IN):
            yield "", f"VM {name}: KubeVirt ignores the annotation {meta.SCALE_IN}"


def _stored(observed: Observed, pool: Pool) -> dict[str, Json]:
    """The ControllerRevisions of the pool, by label."""
    owned = (each for each in observed.revisions if (controller_of(each) or {}).get("uid") == pool.uid)
    return {each["metadata"]["name"].rpartition("-")[2]: each for each in owned}


def _documents(observed: Observed, pool: Pool) -> list[Json]:
    return [*observed.owned(pool.uid), *vmis(observed, pool.uid)]


def next_revision(vm: Json) -> str:
    """The revision of the VM's next VMI."""
    return str(at(vm, "spec", "template", "metadata", "labels", meta.REVISION) or "")


def our_revision(document: Json) -> str:
    return str(at(document, "metadata", "labels", meta.REVISION) or "")


def _why_not(vm: Json, pool: Pool, spec: Json, templates: dict[str, Json]) -> Iterator[str]:
    metadata = vm["metadata"]
    number = ordinal_of(pool.name, metadata["name"])
    if number is None:
        yield f"the name does not match {pool.name}-NUMBER"
    if metadata.get("deletionTimestamp"):
        yield "it is being deleted; wait until it is gone"
    if not matches(spec.get("selector"), metadata.get("labels")):
        yield "the selector of KubeVirt's pool does not match its labels, so KubeVirt would release it"
    if at(metadata, "labels", meta.TRANSITION):
        yield "it waits for lifecycle hooks; wait until they are done"
    if at(metadata, "annotations", meta.REPLACED_DISKS):
        yield "disks that an update has replaced are not retained yet; wait until they are"
    entries = disk_names(templates.get(our_revision(vm)) or pool.spec.template)
    if others := sorted(set(disk_names(vm)) - {f"{entry}-{number}" for entry in entries}):
        yield f"KubeVirt's next update would give it another disk than {', '.join(others)}, by the number of the VM"


def _outdated(vm: Json, spec: Json, pool: Pool) -> tuple[str, str]:
    name, strategy = vm["metadata"]["name"], spec.get("updateStrategy") or {}
    if strategy.get("unmanaged") is not None:
        return "", ""
    if strategy.get("opportunistic") is None:
        return f"VM {name}: KubeVirt would restart it, because it has not the present template; update it first", ""
    before, after = run_strategy(vm["spec"]), run_strategy(pool.spec.template.get("spec") or {})
    if before != after:
        return f"VM {name}: KubeVirt would change its run strategy from {before} to {after}; update it first", ""
    return "", f"VM {name}: KubeVirt writes the template into its spec at once; it does not restart"


def _disks(observed: Observed, pool: Pool) -> Iterator[tuple[str, str]]:
    named = {each["metadata"]["name"]: disk_names(each) for each in observed.vms}
    for claim in _retained(observed, pool):
        metadata = claim["metadata"]
        name, vm = metadata["name"], at(metadata, "labels", meta.KEPT_FOR)
        if not _fits(claim, pool):
            yield "", f"disk {name}: it stays, and `kubectl poolhouse disks` lists it"
        elif at(metadata, "labels", meta.REPLACED):
            yield f"disk {name}: an update has replaced it, and KubeVirt would give it to {vm}; delete it", ""
        elif name in named.get(vm, ()):
            yield f"disk {name}: {vm} has not got it back yet; wait until it has", ""
        else:
            yield "", f"disk {name}: KubeVirt gives it to the next {vm}"


def _freed(observed: Observed, pool: Pool) -> Iterator[tuple[str, str]]:
    """The retained disks that lose our labels, with the name of the VM."""
    for claim in _retained(observed, pool):
        if _fits(claim, pool):
            yield claim["metadata"]["name"], claim["metadata"]["labels"][meta.KEPT_FOR]


def _retained(observed: Observed, pool: Pool) -> list[Json]:
    return [each for each in observed.claims if at(each, "metadata", "labels", meta.KEPT_BY) == pool.uid]


def _fits(claim: Json, pool: Pool) -> bool:
    """Whether KubeVirt gives the retained disk to the VM for which it is retained, because of its name."""
    metadata = claim["metadata"]
    vm = at(metadata, "labels", meta.KEPT_FOR)
    number = ordinal_of(pool.name, str(vm or ""))
    named = {f"{each}-{number}" for each in pool.disk_names}
    return bool(vm) and (is_persistent_state(metadata) or metadata["name"] in named)
