"""An API server in memory, with the rules of the real one that controllers rely on.

Writes have resourceVersions, UIDs, generations, preconditions, finalizers and deletion timestamps. Objects whose owners
are gone are garbage collected. Lists have pages, and watches continue after a resourceVersion. There is no schema, no
admission and no authorization: the histories write only valid objects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from poolhouse.api.apimachinery.label_selectors import from_string, matches
from poolhouse.api.apimachinery.merge_patch import apply_patch
from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import at
from poolhouse.api.kinds.metav1 import NOT_OBSERVED
from poolhouse.api.kinds.resource_types import OURS
from poolhouse.runtime.access_review import SELF_SUBJECT_ACCESS_REVIEWS
from poolhouse.runtime.transport import encode

Json = dict[str, Any]
Key = tuple[str, str]

SERVED = {
    "/apis/kubevirt.io/v1": ("kubevirts",),
    "/apis/migrations.kubevirt.io/v1alpha1": ("migrationpolicies",),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    "/apis/pool.kubevirt.io/v1beta1": ("virtualmachinepools",),
    "/apis/snapshot.kubevirt.io/v1beta1": ("virtualmachinesnapshots", "virtualmachinerestores"),
}
"""What clients may discover."""
NO_STATUS_SUBRESOURCE = frozenset(
    {"virtualmachineinstances.kubevirt.io", "configmaps", "events.events.k8s.io", "resourcequotas"}
)
NO_GENERATION = frozenset(
    {"configmaps", "events.events.k8s.io", "namespaces", "nodes", "persistentvolumeclaims", "resourcequotas"}
)
WITH_STATUS_DEFAULT = frozenset(f"{kind.plural}.{kind.group}" for kind in OURS)
COLLECTION_SECONDS = 0.3
"""Delay of the garbage collector after a change."""
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
PODS = "pods"
ENDED = ("Succeeded", "Failed")
FIELDS = ("metadata.name", "spec.nodeName")
"""Fields by which clients may select."""


class Refused(Exception):
    """A response with an error."""

    def __init__(self, code: int, reason: str, message: str, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after

    @property
    def body(self) -> bytes:
        status = {"kind": "Status", "status": "Failure", "code": self.code}
        return json.dumps({**status, "reason": self.reason, "message": self.message}).encode()


@dataclass(frozen=True)
class Change:
    """A stored write. `old` is None for a new object, `new` for a removed one."""

    actor: str
    plural: str
    old: Json | None
    new: Json | None

    @property
    def document(self) -> Json:
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found

    @property
    def begins_deletion(self) -> bool:
        return self.old is not None and not is_deleting(self.old) and (self.new is None or is_deleting(self.new))


@dataclass(frozen=True)
class LogEntry:
    version: int
    at: float
    old: Json | None
    new: Json | None
    """The stored object; for a deletion None, and `old` has the resourceVersion of the deletion."""

    def event(self, selects: Callable[[Json], bool]) -> tuple[str, Json] | None:
        """The event of a watch with a selector, for which an object begins to exist when the selector matches it."""
        before = self.old is not None and selects(self.old)
        after = self.new is not None and selects(self.new)
        if after:
            assert self.new is not None
            return ("MODIFIED" if before else "ADDED"), self.new
        if not before:
            return None
        assert self.old is not None
        return "DELETED", with_version(self.old, self.version)


@dataclass(frozen=True)
class Path:
    plural: str
    """With the group, like the name of a CRD."""
    namespace: str
    name: str
    subresource: str

    @classmethod
    def parse(cls, text: str) -> Path:
        parts = [unquote(part) for part in text.strip("/").split("/")]
        group = f".{parts[1]}" if parts[0] == "apis" else ""
        rest = parts[3:] if parts[0] == "apis" else parts[2:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        rest += [""] * (3 - len(rest))
        return cls(rest[0] + group, namespace, rest[1], rest[2])


@dataclass
class ApiServer:
    now: Callable[[], datetime]
    observers: list[Callable[[Change], None]] = field(default_factory=list)
    """Called after each write, before anybody else can see it."""
    _objects: dict[str, dict[Key, Json]] = field(default_factory=dict)
    _log: dict[str, list[LogEntry]] = field(default_factory=dict)
    _changed: dict[str, asyncio.Event] = field(default_factory=dict)
    _pages: dict[str, tuple[list[Json], str]] = field(default_factory=dict)
    _version: int = 1
    _uids: int = 0
    _compacted: int = 0
    _collecting: bool = False

    # Requests

    def answer(self, actor: str, method: str, path: str, body: Any, query: Mapping[str, str]) -> Json:
        """Executes a request. Raises `Refused`."""
        if path == SELF_SUBJECT_ACCESS_REVIEWS:
            return {"status": {"allowed": True}}
        if path in SERVED:
            return {"resources": [{"name": name} for name in SERVED[path]]}
        parsed = Path.parse(path)
        dry = "dryRun" in query
        match method:
            case "GET" if parsed.name:
                return self._found(parsed)
            case "GET":
                return self._list(parsed, query)
            case "POST":
                return self._create(actor, parsed, body, dry)
            case "PUT":
                return self._update(actor, parsed, lambda old: body, dry)
            case "PATCH":
                return self._update(actor, parsed, lambda old: patched(old, body), dry)
            case "DELETE":
                return self._delete(actor, parsed, body or {})
        raise Refused(405, "MethodNotAllowed", method)

    def objects(self, plural: str) -> list[Json]:
        return list(self._objects.get(plural, {}).values())

    def get(self, plural: str, namespace: str, name: str) -> Json | None:
        return self._objects.get(plural, {}).get((namespace, name))

    def compact(self) -> None:
        """Forgets the past: a watch from an older resourceVersion is refused with 410."""
        self._compacted = self._version

    def _found(self, path: Path) -> Json:
        found = self.get(path.plural, path.namespace, path.name)
        if found is None:
            raise Refused(404, "NotFound", f'{path.plural} "{path.name}" not found')
        return found

    def _list(self, path: Path, query: Mapping[str, str]) -> Json:
        if token := query.get("continue"):
            if token not in self._pages:
                raise Refused(410, "Expired", "the provided continue parameter is too old")
            items, version = self._pages.pop(token)
        else:
            selects = selector(path, query)
            items, version = [each for each in self.objects(path.plural) if selects(each)], str(self._version)
        limit = int(query.get("limit") or 0) or len(items)
        metadata = {"resourceVersion": version}
        if len(items) > limit:
            token = f"{version}.{len(items)}.{len(self._pages)}"
            self._pages[token] = items[limit:], version
            metadata["continue"] = token
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def _create(self, actor: str, path: Path, body: Json, dry: bool) -> Json:
        metadata = dict(body.get("metadata") or {})
        self._uids += 1
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.pop('generateName')}{self._uids:05d}"
        key = path.namespace, metadata["name"]
        if key in self._objects.get(path.plural, {}):
            raise Refused(409, "AlreadyExists", f'{path.plural} "{metadata["name"]}" already exists')
        for ignored in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"):
            metadata.pop(ignored, None)
        metadata["uid"] = f"00000000-0000-4000-8000-{self._uids:012d}"
        metadata["creationTimestamp"] = format_time(self.now())
        if path.namespace:
            metadata["namespace"] = path.namespace
        if path.plural not in NO_GENERATION:
            metadata["generation"] = 1
        document = {**body, "metadata": without_empty(metadata)}
        if path.plural not in NO_STATUS_SUBRESOURCE:
            document.pop("status", None)
        if path.plural in WITH_STATUS_DEFAULT:
            document["status"] = {"observedGeneration": NOT_OBSERVED}
        elif path.plural == PODS:
            document["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        self._check_owners(document)
        self._check_quota(path)
        if dry:
            return document
        return self._store(actor, path.plural, None, document)

    def _update(self, actor: str, path: Path, change: Callable[[Json], Json], dry: bool) -> Json:
        if path.subresource == "status" and path.plural in NO_STATUS_SUBRESOURCE:
            raise Refused(404, "NotFound", f'{path.plural} "{path.name}" not found')
        old = self._found(path)
        wanted = copied(change(old))
        fixed, metadata = old["metadata"], wanted.get("metadata") or {}
        if (version := metadata.get("resourceVersion")) and version != fixed["resourceVersion"]:
            raise Refused(409, "Conflict", f"{path.name}: the object has been modified")
        # A write of the status ignores all metadata except the resourceVersion. That of a Pod ignores none.
        if (path.subresource != "status" or path.plural == PODS) and metadata.get("uid", fixed["uid"]) != fixed["uid"]:
            raise Refused(422, "Invalid", f"{path.name}: metadata.uid: Invalid value: field is immutable")
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(name, None)
            if name in fixed:
                metadata[name] = fixed[name]
        metadata |= {name: fixed[name] for name in ("name", "namespace", "resourceVersion") if name in fixed}
        if path.subresource == "status":
            kept = {**old, "metadata": without_empty(metadata)} if path.plural == PODS else old
            wanted = {**kept, "status": wanted.get("status")} if "status" in wanted else without(kept, "status")
        else:
            wanted["metadata"] = without_empty(metadata)
            if path.plural not in NO_STATUS_SUBRESOURCE:
                wanted = without(wanted, "status") | ({"status": old["status"]} if "status" in old else {})
        if wanted == old:
            return old
        self._check_owners(wanted)
        before, after = (set(each["metadata"].get("finalizers") or ()) for each in (old, wanted))
        if "deletionTimestamp" in fixed and after - before:
            raise Refused(422, "Invalid", "metadata.finalizers: no new finalizers can be added during deletion")
        ignored = {"metadata"} if path.plural in NO_STATUS_SUBRESOURCE else {"metadata", "status"}
        if "generation" in fixed and any(wanted.get(key) != old.get(key) for key in {*wanted, *old} - ignored):
            wanted["metadata"] = {**wanted["metadata"], "generation": fixed["generation"] + 1}
        if dry:
            return wanted
        if "deletionTimestamp" in fixed and not fixed["deletionGracePeriodSeconds"] and not after:
            return self._store(actor, path.plural, wanted, None)
        return self._store(actor, path.plural, old, wanted)

    def _delete(self, actor: str, path: Path, options: Json) -> Json:
        old = self._found(path)
        metadata = old["metadata"]
        for name, value in (options.get("preconditions") or {}).items():
            if metadata[name] != value:
                raise Refused(409, "Conflict", f"{path.name}: Precondition failed: {name} differs")
        if path.plural == PODS and (grace := _grace_seconds(old, options)):
            if grace >= metadata.get("deletionGracePeriodSeconds", grace + 1):
                return old  # a later request may only shorten the grace period
            end = format_time(self.now() + timedelta(seconds=grace))
            later = {"deletionTimestamp": end, "deletionGracePeriodSeconds": grace}
            later["generation"] = metadata["generation"] + (not is_deleting(old))
            return self._store(actor, path.plural, old, {**old, "metadata": {**metadata, **later}})
        finalizers = [each for each in metadata.get("finalizers") or () if each not in (FOREGROUND, ORPHAN)]
        match options.get("propagationPolicy"):
            case "Foreground":
                finalizers.append(FOREGROUND)
            case "Orphan":
                finalizers.append(ORPHAN)
            case None:  # the policy of an earlier deletion stays
                finalizers = list(metadata.get("finalizers") or ())
        if not finalizers:
            self._store(actor, path.plural, old, None)
            return {"kind": "Status", "status": "Success"}
        changed = {**metadata, "finalizers": finalizers}
        if "deletionTimestamp" not in metadata:
            changed |= {"deletionTimestamp": format_time(self.now()), "deletionGracePeriodSeconds": 0}
            if "generation" in metadata:
                changed["generation"] = metadata["generation"] + 1
        if changed == metadata:
            return old
        return self._store(actor, path.plural, old, {**old, "metadata": changed})

    def _store(self, actor: str, plural: str, old: Json | None, new: Json | None) -> Json:
        self._version += 1
        document = old if new is None else new
        assert document is not None
        document = with_version(document, self._version)
        metadata = document["metadata"]
        key = metadata.get("namespace", ""), metadata["name"]
        objects = self._objects.setdefault(plural, {})
        stored = objects.get(key)
        if new is None:
            del objects[key]
        else:
            objects[key] = document
        now = asyncio.get_running_loop().time()
        entry = LogEntry(self._version, now, document if new is None else stored, None if new is None else document)
        self._log.setdefault(plural, []).append(entry)
        if plural in self._changed:
            self._changed.pop(plural).set()
        for observer in self.observers:
            observer(Change(actor, plural, stored, None if new is None else document))
        self._collect_later()
        return document

    # Watches

    def entries(self, plural: str, after: int) -> Iterator[LogEntry]:
        """Raises `Refused` if the past since `after` is forgotten."""
        if after < self._compacted:
            raise Refused(410, "Expired", f"too old resource version: {after} ({self._compacted})")
        log = self._log.get(plural, [])
        first = len(log)
        while first and log[first - 1].version > after:
            first -= 1
        yield from log[first:]

    def changed(self, plural: str) -> asyncio.Event:
        """Set at the next change."""
        return self._changed.setdefault(plural, asyncio.Event())

    @property
    def version(self) -> int:
        return self._version

    # Admission by quota, and owner references

    def _check_quota(self, path: Path) -> None:
        for quota in self.objects("resourcequotas"):
            limit = (quota["spec"].get("hard") or {}).get(f"count/{path.plural}")
            used = sum(namespace == path.namespace for namespace, _ in self._objects.get(path.plural, {}))
            if limit is not None and quota["metadata"]["namespace"] == path.namespace and used >= int(limit):
                name = quota["metadata"]["name"]
                raise Refused(403, "Forbidden", f'{path.plural} "x" is forbidden: exceeded quota: {name}')

    def _check_owners(self, document: Json) -> None:
        if sum(bool(each.get("controller")) for each in document["metadata"].get("ownerReferences") or ()) > 1:
            raise Refused(
                422, "Invalid", "metadata.ownerReferences: Only one reference can have Controller set to true"
            )

    # Garbage collection

    def _collect_later(self) -> None:
        if not self._collecting:
            self._collecting = True
            asyncio.get_running_loop().call_later(COLLECTION_SECONDS, self._collect)

    def _collect(self) -> None:
        self._collecting = False
        alive = {each["metadata"]["uid"]: each for objects in self._objects.values() for each in objects.values()}
        dependents: dict[str, list[tuple[str, Json]]] = {}
        for plural, objects in self._objects.items():
            for each in list(objects.values()):
                for owner in each["metadata"].get("ownerReferences") or ():
                    dependents.setdefault(owner["uid"], []).append((plural, each))
        for plural, objects in list(self._objects.items()):
            for each in list(objects.values()):
                metadata = each["metadata"]
                finalizers = metadata.get("finalizers") or ()
                if "deletionTimestamp" in metadata and ORPHAN in finalizers:
                    for dependent_plural, dependent in dependents.get(metadata["uid"], ()):
                        self._disown(dependent_plural, dependent, {metadata["uid"]})
                    self._drop_finalizer(plural, each, ORPHAN)
                elif "deletionTimestamp" in metadata and FOREGROUND in finalizers:
                    left = dependents.get(metadata["uid"], ())
                    for dependent_plural, dependent in left:
                        if "deletionTimestamp" not in dependent["metadata"] and self._only_owner(dependent, alive):
                            self._collected(dependent_plural, dependent, "Foreground")
                    if not any(_blocks(dependent, metadata["uid"]) for _, dependent in left):
                        self._drop_finalizer(plural, each, FOREGROUND)
                elif owners := metadata.get("ownerReferences"):
                    absent = {owner["uid"] for owner in owners if owner["uid"] not in alive}
                    if len(absent) == len({owner["uid"] for owner in owners}):
                        if "deletionTimestamp" not in metadata:
                            self._collected(plural, each, "Background")
                    elif absent:
                        self._disown(plural, each, absent)

    def _only_owner(self, dependent: Json, alive: Mapping[str, Json]) -> bool:
        """Whether all existing owners of a dependent wait for its deletion."""
        owners = [alive[owner["uid"]] for owner in dependent["metadata"]["ownerReferences"] if owner["uid"] in alive]
        return all(FOREGROUND in (owner["metadata"].get("finalizers") or ()) for owner in owners)

    def _collected(self, plural: str, document: Json, propagation: str) -> None:
        metadata = document["metadata"]
        path = Path(plural, metadata.get("namespace", ""), metadata["name"], "")
        current = self.get(plural, path.namespace, path.name)
        if current is not None and current["metadata"]["uid"] == metadata["uid"]:
            self._delete("garbage-collector", path, {"propagationPolicy": propagation})

    def _disown(self, plural: str, document: Json, owners: set[str]) -> None:
        left = [each for each in document["metadata"]["ownerReferences"] if each["uid"] not in owners]
        self._write_metadata(plural, document, {"ownerReferences": left or None})

    def _drop_finalizer(self, plural: str, document: Json, name: str) -> None:
        left = [each for each in document["metadata"]["finalizers"] if each != name]
        self._write_metadata(plural, document, {"finalizers": left or None})

    def _write_metadata(self, plural: str, document: Json, change: Json) -> None:
        metadata = document["metadata"]
        current = self.get(plural, metadata.get("namespace", ""), metadata["name"])
        if current is not None and current["metadata"]["uid"] == metadata["uid"]:
            path = Path(plural, metadata.get("namespace", ""), metadata["name"], "")
            self._update("garbage-collector", path, lambda old: apply_patch(old, {"metadata": change}), False)


def selector(path: Path, query: Mapping[str, str]) -> Callable[[Json], bool]:
    labels = from_string(query["labelSelector"]) if query.get("labelSelector") else {}
    wanted = dict(part.split("=", 1) for part in (query.get("fieldSelector") or "").split(",") if part)

    def selects(document: Json) -> bool:
        metadata = document["metadata"]
        if path.namespace and metadata.get("namespace") != path.namespace:
            return False
        if any(wanted[field] != at(document, *field.split(".")) for field in FIELDS if field in wanted):
            return False
        return not labels or matches(labels, metadata.get("labels"))

    return selects


def line(kind: str, document: Json) -> bytes:
    return encode({"type": kind, "object": document}) + b"\n"


def patched(document: Json, patch: Any) -> Json:
    """A list is a JSON patch, of which clients use `test` and writes of members; an object is a merge patch."""
    if isinstance(patch, dict):
        return dict(apply_patch(document, patch))
    found: Json = json.loads(json.dumps(document))
    for operation in patch:
        *parents, last = operation["path"].strip("/").split("/")
        target = found
        for each in parents:
            target = target[each]
        if operation["op"] == "test" and target.get(last) != operation["value"]:
            raise Refused(422, "Invalid", f"testing value {operation['path']} failed: test failed")
        if operation["op"] in ("add", "replace"):
            target[last] = operation["value"]
    return found


def _grace_seconds(pod: Json, options: Json) -> int:
    """How long a deleted Pod stays, so that its node can end it."""
    spec, given = pod["spec"], options.get("gracePeriodSeconds")
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ENDED:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30) if given is None else given)


def is_deleting(document: Json) -> bool:
    return "deletionTimestamp" in document["metadata"]


def copied(document: Json) -> Json:
    found = dict(document)
    if isinstance(found.get("metadata"), dict):
        found["metadata"] = dict(found["metadata"])
    return found


def with_version(document: Json, version: int) -> Json:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}


def without(document: Json, key: str) -> Json:
    return {name: value for name, value in document.items() if name != key}


def without_empty(metadata: Json) -> Json:
    """Metadata as Go encodes it: empty maps and lists are absent."""
    return {key: value for key, value in metadata.items() if value not in ({}, [], None, "")}


def _blocks(dependent: Json, uid: str) -> bool:
    owners = dependent["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)
