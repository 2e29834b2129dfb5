"""The plan of a change: its problems, the difference, the order of actions, and then the change itself."""

from __future__ import annotations

import difflib
import hashlib
import io
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from controllers.pool.hypothetical_snapshot import hypothetical_snapshot as of_pool
from controllers.replicaset.simulate import hypothetical_snapshot as of_replica_set
from poolhouse.api.apimachinery.merge_patch import LAST_APPLIED
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kind import Kind
from poolhouse.api.kinds.migrationpolicy import MIGRATION_POLICY
from poolhouse.api.kinds.pool import POOL
from poolhouse.api.kinds.replicaset import REPLICA_SET
from poolhouse.cli.apply import Change, read_change, send
from poolhouse.cli.cluster import Cluster, with_namespace
from poolhouse.cli.foreign_kinds import refuse_foreign_replica_sets
from poolhouse.cli.manifests import Manifest, read_manifests
from poolhouse.cli.output import Failed, yaml_text
from poolhouse.cli.parameters import qualified_name
from poolhouse.cli.plan import pool_answer, replica_set_answer, update_lines, valid
from poolhouse.cli.policy import impact_of
from poolhouse.cli.pools import BURST
from poolhouse.console.cluster_state import ClusterState
from poolhouse.console.computations import TooExpensive
from poolhouse.console.page import Page, Part, Query, object_path
from poolhouse.runtime.errors import ApiError
from poolhouse.runtime.resource import Resource

MANAGER = "poolhouse-console"
MAX_ROWS = 200
MAX_ACTIONS = 2000
"""Limit of the simulation of a change, for which a user waits."""
MAX_DIFF = 600
MAX_COMPARED = 3_000
"""How many lines of an object are compared. The time of a comparison can grow with the square of their number."""
MAX_DRAFTS = 32
MAX_OBJECTS = 100
Edited = Mapping[str, Json]
CHANGED = "An object or the text has changed since this plan was made. Look at the new plan before you apply it."
KEPT = ("labels", "annotations")
"""maps in the metadata that users edit"""


@dataclass(frozen=True)
class Applied:
    """What was changed, and the page that shows it."""

    path: str
    message: str


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
    return yaml_text(document)


def diff(before: Json | None, after: Json) -> list[tuple[str, str]]:
    """The lines of a unified diff, each with `add`, `remove`, `place` or `same`. It takes seconds for long objects."""
    old, new = shown(before).splitlines() if before is not None else [], shown(after).splitlines()
    if max(len(old), len(new)) > MAX_COMPARED:
        return [("place", f"There are {max(len(old), len(new))} lines; at most {MAX_COMPARED} are compared.")]
    lines = [*difflib.unified_diff(old, new, lineterm="", n=3)][2:]
    words = {"+": "add", "-": "remove", "@": "place"}
    return [(words.get(line[:1], "same"), line) for line in lines[:MAX_DIFF]]


@dataclass(frozen=True)
class Text:
    """The YAML of the form."""

    yaml: str
    edited: str
    """the YAML of the stored object that the user edits; empty if the user pastes manifests"""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Text:
        return cls(*(values.get(key, "").replace("\r\n", "\n") for key in ("yaml", "edited")))

    def read(self) -> tuple[list[Manifest], Edited]:
        """The objects, and those before the user has edited them. Raises `Failed`. It takes seconds for a long text."""
        found = read_manifests(_file(self.yaml))
        if len(found) > MAX_OBJECTS:
            raise Failed(f"YAML: contains {len(found)} objects; plan at most {MAX_OBJECTS} at once")
        edited = read_manifests(_file(self.edited)) if self.edited.strip() else []
        return found, {identity(each.document): each.document for each in edited}


def identity(document: Json) -> str:
    """Which object a manifest is of. Values of any type are compared as text."""
    return repr([at(document, *key) for key in (("kind",), ("metadata", "name"), ("metadata", "namespace"))])


@dataclass(frozen=True)
class Draft:
    """What a user has sent to be planned, and why it was not applied."""

    text: Text
    problem: str = ""


class Drafts:
    """The last drafts. The address of a plan names its draft, so that a browser can return to the plan or reload it."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}

    def add(self, draft: Draft) -> str:
        """Returns the name of the draft."""
        name = secrets.token_urlsafe(9)
        self._drafts[name] = draft
        while len(self._drafts) > MAX_DRAFTS:
            del self._drafts[next(iter(self._drafts))]
        return name

    def get(self, name: str) -> Draft | None:
        return self._drafts.get(name)


async def page(state: ClusterState, cluster: Cluster, drafts: Drafts, query: Query) -> Page:
    """The empty form, that of a stored object to edit, or the plan of a draft."""
    if name := query.get("plan"):
        draft = drafts.get(name)
        if draft is None:
            return _page(Text("", ""), [], may_apply=False, problem="The console does not have this plan any more.")
        return await plan(state, cluster, draft)
    kind = next((kind for kind in KINDS if kind.short_name == query.get("kind")), None)
    key = query.get("namespace", ""), query.get("name", "")
    document = state.get(kind.kind, key) if kind is not None else None
    text = ""
    if kind is not None and document is not None:
        text = await state.compute(shown, {"apiVersion": kind.api_version, "kind": kind.kind, **document})
    return _page(Text(text, edited=text), [], may_apply=False)


def _page(text: Text, results: list[Json], *, may_apply: bool, problem: str = "") -> Page:
    values = {
        **{"text": text.yaml, "edited": text.edited, "rows": _rows(text.yaml)},
        **{"results": results, "may_apply": may_apply, "problem": problem},
    }
    return Page("Plan a change", [Part("change", "change.html", values)], "change", live=False)


def _rows(text: str) -> int:
    return min(max(text.count("\n") + 2, 14), 40)


async def plan(state: ClusterState, cluster: Cluster, draft: Draft) -> Page:
    """The problems, the difference and the effects of a draft. Changes nothing."""
    text = draft.text
    try:
        changes = await _changes(state, cluster, text)
    except Failed as error:
        return _page(text, [], may_apply=False, problem=draft.problem or error.format_message())
    results = [await _result(state, each) for each in changes]
    valid = not any(each["problems"] for each in results)
    found = _page(text, results, may_apply=valid, problem=draft.problem)
    return _with_versions(found, _versions(text, changes))


async def submit(state: ClusterState, cluster: Cluster, values: Mapping[str, str]) -> Draft | Applied:
    """Applies the YAML of a form if the user has asked for it and seen the plan of this text and these objects. Returns
    the draft to plan otherwise."""
    text = Text.of(values)
    if values.get("do") != "apply":
        return Draft(text)
    try:
        changes = await _changes(state, cluster, text)
    except Failed:
        return Draft(text)  # its plan says why
    if values.get("versions") != _versions(text, changes):
        return Draft(text, CHANGED)
    return await _apply(state, changes, text)


async def _changes(state: ClusterState, cluster: Cluster, text: Text) -> list[Change]:
    manifests, edited = await state.compute(text.read)
    return [await _change(state, cluster, each, edited) for each in manifests]


def _versions(text: Text, changes: list[Change]) -> str:
    """A value that differs once the text or a stored object has changed."""
    stored = (str((each.stored or {"metadata": {}})["metadata"].get("resourceVersion", "")) for each in changes)
    # A browser may leave out a newline at the start or the end of the text.
    return ",".join((hashlib.blake2b(text.yaml.strip().encode(), digest_size=8).hexdigest(), *stored))


def _with_versions(found: Page, versions: str) -> Page:
    [part] = found.parts
    return replace(found, parts=[replace(part, values={**part.values, "versions": versions})])


async def _apply(state: ClusterState, changes: list[Change], text: Text) -> Draft | Applied:
    done: list[str] = []
    for each in changes:
        try:
            # The resourceVersion prevents that the change applies to another object than the one of the plan.
            version = str(at(each.stored, "metadata", "resourceVersion") or "")
            await send(state.api, each, dry_run=False, warnings=[], manager=MANAGER, version=version)
        except ApiError as error:
            before = f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} applied. " if done else ""
            return Draft(text, f"{before}{_title(each)}: {with_namespace(error)}")
        done.append(_title(each))
    first = changes[0]
    path = object_path(first.kind.short_name, first.namespace, first.name)
    return Applied(path, f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} applied")


def _file(text: str) -> io.BytesIO:
    found = io.BytesIO(text.encode())
    found.name = "YAML"
    return found


def _title(change: Change) -> str:
    return f"{change.kind.short_name}/{change.name}"


async def _change(state: ClusterState, cluster: Cluster, manifest: Manifest, edited: Edited) -> Change:
    document = manifest.document
    kind = next((kind for kind in KINDS if kind.kind == document.get("kind")), None)
    if kind is None:
        known = ", ".join(each.kind for each in KINDS)
        raise Failed(f"{manifest.place}: is {manifest}; the console changes {known}")
    metadata = typed(dict, document, "metadata") or {}
    if not typed(str, metadata, "name"):
        raise Failed(f"{manifest.place}: metadata.name: is missing; give a name")
    if kind.namespaced:
        namespace = typed(str, metadata, "namespace") or state.namespace or cluster.namespace
        document = {**document, "metadata": {**metadata, "namespace": namespace}}
    try:
        return await read_change(state.api, kind, document, edited.get(identity(document)))
    except ApiError as error:
        raise Failed(f"{manifest.place}: {error.message}") from None


async def _result(state: ClusterState, change: Change) -> Json:
    """What the console and the API server say about one object."""
    warnings: list[str] = []
    problems, after = await state.compute(_checked, change)
    if not problems:
        try:
            after = await send(state.api, change, dry_run=True, warnings=warnings, manager=MANAGER)
        except ApiError as error:
            causes = [{"path": each.get("field") or "", "message": each.get("message") or ""} for each in error.causes]
            problems = causes or [{"path": "", "message": with_namespace(error)}]
    result = {
        "name": _title(change),
        "namespace": change.namespace,
        "new": change.stored is None,
        "problems": problems,
        "warnings": warnings,
        "diff": await _compared(state, _titled(change.stored, change.kind), after),
        "command": _command(change),
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


def _checked(change: Change) -> tuple[list[Json], Json]:
    """The problems of the object, and the object afterwards."""
    return [{"path": each.path, "message": each.message} for each in change.problems()], change.merged


async def _compared(state: ClusterState, before: Json | None, after: Json) -> list[tuple[str, str]]:
    try:
        return await state.compute(diff, before, after)
    except TooExpensive as error:
        return [("place", error.format_message())]


def _command(change: Change) -> str:
    if change.edited is None or change.stored is None:
        return "kubectl apply -f FILE"
    namespace = f" -n {change.namespace}" if change.namespace else ""
    return f"kubectl edit {qualified_name(change.kind.kind, change.name)}{namespace}"


def _titled(document: Json | None, kind: Kind) -> Json | None:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **document} if document is not None else None


async def _effects(state: ClusterState, change: Change, after: Json) -> Json:
    """The actions of a pool or replica set, or the VMIs that get another migration policy."""
    if change.kind is MIGRATION_POLICY:
        total, changes, warnings = await impact_of(state.api, [after], ())
        rows = [asdict(each) for each in changes[:MAX_ROWS]]
        return {"impact": {"total": total, "number": len(changes), "rows": rows}, "warnings": warnings}
    return {"plan": await _actions(state, change.kind.kind, after)}


async def _actions(state: ClusterState, kind: str, after: Json) -> Json | None:
    """The actions on the VMs of a pool, or on the VMIs of a replica set, that is stored like this. None for others."""
    if kind == POOL.kind:
        snapshot = valid(of_pool(state.pools, after, BURST))
        return _plan(await state.compute(pool_answer, snapshot, state.now(), MAX_ACTIONS))
    if kind == REPLICA_SET.kind:
        await refuse_foreign_replica_sets(state.api)
        replicas = valid(of_replica_set(state.replica_sets, after, BURST))
        return _plan(await state.compute(replica_set_answer, replicas, state.now(), MAX_ACTIONS))
    return None


async def effects_of_act(state: ClusterState, resource: Resource, before: Json, after: Json) -> Json:
    """The difference and the actions of an act. A user may also carry out an act whose plan is too expensive."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    found: Json = {"diff": await _compared(state, {**before, **kind}, {**after, **kind}), "problem": ""}
    try:
        return {**found, "plan": await _actions(state, resource.kind, after)}
    except TooExpensive as error:
        return {**found, "problem": error.format_message()}


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
    yield from answer.get("notes", ())
    yield from update_lines(answer.get("update") or {})
    yield from (f"{each['vm']} waits: {each['reason']}" for each in answer["waits"][:MAX_ROWS])
    yield from (each for each in (answer["blocked"], answer["refused"]) if each)
