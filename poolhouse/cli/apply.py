"""What `kubectl apply` would send for a manifest, and the object that the API server would store then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from poolhouse.api.apimachinery.merge_patch import apply_patch, last_applied, three_way_patch, with_last_applied
from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json

if TYPE_CHECKING:
    from poolhouse.api.kinds.kind import Kind
    from poolhouse.runtime.api import Api
    from poolhouse.runtime.resource import Resource

CLIENT_SIDE = "kubectl-client-side-apply"
SERVER_SIDE = "kubectl"
"""kubectl's names as a field manager"""
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Change:
    """A manifest of one object, and the stored object."""

    kind: Kind
    manifest: Json
    stored: Json | None
    """None if the object is new"""
    edited: Json | None = None
    """the text of the stored object that a user has edited to get the manifest, as in `kubectl edit`; None in
    `kubectl apply`, which compares the manifest with the last one applied"""

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"].get("namespace") or "")

    @property
    def body(self) -> Json:
        """The new object, or the JSON merge patch of the stored one."""
        if self.stored is None:
            return with_last_applied(self.manifest)
        if self.edited is not None:
            return three_way_patch(self.edited, self.manifest, self.stored)
        return three_way_patch(last_applied(self.stored), with_last_applied(self.manifest), self.stored)

    @property
    def merged(self) -> Json:
        """The object afterwards, without what admission and the schema add."""
        found = self.kind.normalize(self.body if self.stored is None else apply_patch(self.stored, self.body))
        return found if isinstance(found, dict) else {}

    def problems(self) -> list[Problem]:
        return self.kind.problems(self.merged)


async def read_change(api: Api, kind: Kind, manifest: Json, edited: Json | None = None) -> Change:
    """The manifest with the stored object. The manifest must have a name, and the namespace of a namespaced kind."""
    from poolhouse.runtime.api import find

    metadata = manifest["metadata"]
    stored = await find(api, _resource(kind, manifest), metadata.get("namespace"), metadata["name"])
    return Change(kind, manifest, stored, edited)


async def send(
    api: Api, change: Change, *, dry_run: bool, warnings: list[str], manager: str = CLIENT_SIDE, version: str = ""
) -> Json:
    """Applies the change as `kubectl apply` does by default, and returns the object. `version` is the resourceVersion
    that the stored object must have; empty for any. Raises ApiError."""
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    resource, body = _resource(change.kind, change.manifest), change.body
    if change.stored is None:
        method, path, headers = "POST", resource.path(change.namespace or None), {}
    else:
        method, path, headers = "PATCH", resource.path(change.namespace or None, change.name), {"Content-Type": MERGE}
        if version:
            body = apply_patch(body, {"metadata": {"resourceVersion": version}})
    return await api.request(
        method, path, body=body, headers=headers, query=_dry(query, dry_run=dry_run), warnings=warnings
    )


async def dry_run_server_side(api: Api, change: Change, *, force: bool, warnings: list[str]) -> Json:
    """The object after `kubectl apply --server-side`. Raises ApiError, and Conflict for the fields of other managers
    if not `force`."""
    query = {"fieldManager": SERVER_SIDE, "fieldValidation": "Strict", "force": str(force).lower()}
    return await api.request(
        "PATCH",
        _resource(change.kind, change.manifest).path(change.namespace or None, change.name),
        body=change.manifest,
        headers={"Content-Type": APPLY},
        query=_dry(query, dry_run=True),
        warnings=warnings,
    )


def _dry(query: dict[str, str], *, dry_run: bool) -> dict[str, str]:
    return {**query, "dryRun": "All"} if dry_run else query


def _resource(kind: Kind, manifest: Json) -> Resource:
    """The resource in the version of the manifest, or in the first version if that is not served."""
    from poolhouse.runtime.resource import Resource

    version = str(manifest.get("apiVersion")).rpartition("/")[2]
    found = Resource.of(kind)
    return replace(found, version=version) if version in kind.versions else found
