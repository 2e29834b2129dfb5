"""The plan of a change: its problems, the difference, the order of actions, and then the change itself."""

from __future__ import annotations

import difflib
import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import yaml

from apimachinery.unstructured import Json
from cli.cluster import Cluster
from cli.manifests import Manifest, read_manifests
from cli.output import Failed
from cli.plan import simulate_pool, simulate_replica_set, update_lines
from cli.policy import impact_of
from console.cluster_state import BURST, ClusterState
from console.page import Page, Part, Query, object_path
from kinds import KINDS
from kinds.kind import Kind
from kinds.migrationpolicy import MIGRATION_POLICY
from kinds.pool import POOL
from kinds.replicaset import REPLICA_SET
from runtime.errors import ApiError, NotFound
from runtime.resource import Resource

MANAGER = "poolhouse-console"
MAX_ROWS = 200
MAX_DIFF = 600
KEPT = ("labels", "annotations")
"""maps in the metadata that a manifest replaces if it has them"""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class Applied:
    """What was changed, and the page that shows it."""

    path: str
    message: str


@dataclass(frozen=True)
class Change:
    """One object of the manifest, beside the stored one."""

    kind: Kind
    document: Json
    """the object that is sent to the API server"""
    stored: Json | None
    """the object that is there now; None if it is new"""

    @property
    def name(self) -> str:
        return f"{self.kind.short_name}/{self.document['metadata']['name']}"

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")


def merged(stored: Json | None, document: Json, kind: Kind, namespace: str) -> Json:
    """The object to send: the spec is that of the manifest, and what the manifest cannot say stays as it is. The
    resourceVersion of the stored object prevents that a change of somebody else is lost."""
    metadata = dict(document.get("metadata") or {})
    if kind.namespaced:
        metadata.setdefault("namespace", namespace)
    metadata = {key: metadata[key] for key in ("name", "generateName", "namespace", *KEPT) if key in metadata}
    if stored is None:
        return {**{key: value for key, value in document.items() if key != "status"}, "metadata": metadata}
    before: Json = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
    if "annotations" in metadata and (applied := (before.get("annotations") or {}).get(LAST_APPLIED)):
        metadata["annotations"] = {LAST_APPLIED: applied, **(metadata["annotations"] or {})}
    return {**document, "metadata": {**before, **metadata}, "status": stored.get("status")}


def shown(document: Json) -> str:
    """The YAML of a stored object as a user edits it."""
    metadata = document["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", *KEPT) if metadata.get(key)}
    if LAST_APPLIED in (notes := kept.get("annotations") or {}):
        kept["annotations"] = {key: value for key, value in notes.items() if key != LAST_APPLIED}
        if not kept["annotations"]:
            del kept["annotations"]
    parts: Json = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    return dump({**parts, "metadata": kept, "spec": document.get("spec") or {}})


def dump(document: object) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True))


def diff(before: Json | None, after: Json) -> list[tuple[str, str]]:
    """The lines of a unified diff, each with `add`, `remove`, `place` or `same`."""
    old = shown(before).splitlines() if before is not None else []
    lines = [*difflib.unified_diff(old, shown(after).splitlines(), lineterm="", n=3)][2:]
    words = {"+": "add", "-": "remove", "@": "place"}
    return [(words.get(line[:1], "same"), line) for line in lines[:MAX_DIFF]]


async def page(state: ClusterState, query: Query) -> Page:
    """The empty form, or that of a stored object."""
    kind = next((kind for kind in KINDS if kind.short_name == query.get("kind")), None)
    key = query.get("namespace", ""), query.get("name", "")
    document = state.get(kind.kind, key) if kind is not None else None
    text = ""
    if kind is not None and document is not None:
        text = shown({"apiVersion": kind.api_version, "kind": kind.kind, **document})
    return _page(text, [], may_apply=False)


def _page(text: str, results: list[Json], *, may_apply: bool, problem: str = "") -> Page:
    values = {"text": text, "results": results, "may_apply": may_apply, "problem": problem, "rows": _rows(text)}
    return Page("Plan a change", [Part("change", "change.html", values)], "change", live=False)


def _rows(text: str) -> int:
    return min(max(text.count("\n") + 2, 14), 40)


async def preview(state: ClusterState, cluster: Cluster, values: Mapping[str, str]) -> Page | Applied:
    """The plan of the YAML in `values`, or the result of applying it."""
    text = values.get("yaml", "").replace("\r\n", "\n")
    try:
        changes = [await _change(state, cluster, each) for each in read_manifests(_file(text))]
    except Failed as error:
        return _page(text, [], may_apply=False, problem=error.format_message())
    stored = (str((each.stored or {"metadata": {}})["metadata"].get("resourceVersion", "")) for each in changes)
    # A browser may leave out a newline at the start or the end of the text.
    versions = ",".join((hashlib.blake2b(text.strip().encode(), digest_size=8).hexdigest(), *stored))
    results = [await _result(state, each) for each in changes]
    valid = not any(each["problems"] for each in results)
    if values.get("do") != "apply" or not valid:
        return _with_versions(_page(text, results, may_apply=valid), versions)
    if values.get("versions") != versions:
        problem = (
            "An object or the text has changed since this plan was made. Look at the new plan before you apply it."
        )
        return _with_versions(_page(text, results, may_apply=True, problem=problem), versions)
    return await _apply(state, changes, text, results)


def _with_versions(found: Page, versions: str) -> Page:
    [part] = found.parts
    return replace(found, parts=[replace(part, values={**part.values, "versions": versions})])


async def _apply(state: ClusterState, changes: list[Change], text: str, results: list[Json]) -> Page | Applied:
    done: list[str] = []
    for each in changes:
        try:
            await _send(state, each, dry_run=False, warnings=[])
        except ApiError as error:
            before = f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} applied. " if done else ""
            return _page(text, results, may_apply=False, problem=f"{before}{each.name}: {error.message}")
        done.append(each.name)
    first = changes[0]
    path = object_path(first.kind.short_name, first.namespace, first.document["metadata"]["name"])
    return Applied(path, f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} applied")


def _file(text: str) -> io.BytesIO:
    found = io.BytesIO(text.encode())
    found.name = "YAML"
    return found


async def _change(state: ClusterState, cluster: Cluster, manifest: Manifest) -> Change:
    document = manifest.document
    kind = next((kind for kind in KINDS if kind.kind == document.get("kind")), None)
    if kind is None:
        known = ", ".join(each.kind for each in KINDS)
        raise Failed(f"{manifest.place}: is {manifest}; the console changes {known}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise Failed(f"{manifest.place}: metadata.name: is missing; give a name")
    space = metadata.get("namespace") if isinstance(metadata, dict) else None
    namespace = str(space) if isinstance(space, str) and space else state.namespace or cluster.namespace
    try:
        stored = await state.api.get(Resource.of(kind), namespace if kind.namespaced else None, name)
    except NotFound:
        stored = None
    except ApiError as error:
        raise Failed(f"{manifest.place}: {error.message}") from None
    return Change(kind, merged(stored, kind.normalize(document), kind, namespace), stored)


async def _result(state: ClusterState, change: Change) -> Json:
    """What the console and the API server say about one object."""
    warnings: list[str] = []
    problems = [{"path": each.path, "message": each.message} for each in change.kind.problems(change.document)]
    after = change.document
    if not problems:
        try:
            after = await _send(state, change, dry_run=True, warnings=warnings)
        except ApiError as error:
            causes = [{"path": each.get("field") or "", "message": each.get("message") or ""} for each in error.causes]
            problems = causes or [{"path": "", "message": error.message}]
    result = {
        "name": change.name,
        "namespace": change.namespace,
        "new": change.stored is None,
        "problems": problems,
        "warnings": warnings,
        "diff": diff(_titled(change.stored, change.kind), after),
        "command": f"kubectl {'create' if change.stored is None else 'replace'} -f FILE",
        "plan": None,
        "impact": None,
        "failed": "",
    }
    if problems:
        return result
    try:
        found = await _effects(state, change, after)
        return {**result, **found, "warnings": [*warnings, *found.get("warnings", ())]}
    except Failed as error:
        return {**result, "failed": error.format_message()}
    except ApiError as error:
        return {**result, "failed": error.message}


def _titled(document: Json | None, kind: Kind) -> Json | None:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **document} if document is not None else None


async def _effects(state: ClusterState, change: Change, after: Json) -> Json:
    """The actions of a pool or replica set, or the VMIs that get another migration policy."""
    now = state.now()
    if change.kind is POOL:
        return {"plan": _plan(simulate_pool(state.pools, after, BURST, now))}
    if change.kind is REPLICA_SET:
        return {"plan": _plan(simulate_replica_set(state.replica_sets, after, BURST, now))}
    if change.kind is MIGRATION_POLICY:
        total, changes, warnings = await impact_of(state.api, [change.document], ())
        rows = [asdict(each) for each in changes[:MAX_ROWS]]
        return {"impact": {"total": total, "number": len(changes), "rows": rows}, "warnings": warnings}
    return {}


def _plan(answer: Json) -> Json:
    rows = answer["plan"]
    return {
        "rows": rows[:MAX_ROWS],
        "actions": len(rows),
        "rounds": rows[-1]["step"] if rows else 0,
        "more": len(rows) > MAX_ROWS or not answer["complete"],
        "notes": list(_notes(answer)),
    }


def _notes(answer: Json) -> Iterator[str]:
    yield from update_lines(answer.get("update") or {})
    yield from (f"{each['vm']} waits: {each['reason']}" for each in answer["waits"][:MAX_ROWS])
    yield from (each for each in (answer["blocked"], answer["refused"]) if each)


async def _send(state: ClusterState, change: Change, *, dry_run: bool, warnings: list[str]) -> Json:
    resource, metadata = Resource.of(change.kind), change.document["metadata"]
    namespace = change.namespace or None
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    if change.stored is None:
        path, method = resource.path(namespace), "POST"
    else:
        path, method = resource.path(namespace, metadata["name"]), "PUT"
    return await state.api.request(method, path, body=change.document, query=query, warnings=warnings)
