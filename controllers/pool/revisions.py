"""Templates that a pool has had, as ControllerRevisions, compared by what they mean.

The meaning of both sides is always computed by the code that runs now, from the document that was written down. A
release that computes it otherwise therefore changes both sides alike, and restarts nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kinds import meta
from kinds.pool import NameGeneration, PoolSpec

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    owner: str
    """UID of the pool: one of the same name before it may have left revisions behind"""
    number: int
    meaning: str
    guest: str = ""
    """meaning of that part which a running guest was started from: where it differs, only a restart brings the new"""

    @property
    def label(self) -> str:
        """What VMs made from it carry; short, because label values end at 63 characters and pool names don't."""
        return self.name.rpartition("-")[2]


def content(spec: PoolSpec) -> Json:
    """What of a pool decides what its VMs are."""
    postfixes = {name: True for name, asked in spec.name_generation.json().items() if asked}
    return {"template": spec.template, "nameGeneration": postfixes}


def meaning(value: Json) -> str:
    """A digest that is equal for values that mean the same: null and empty lists are as good as absent."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _of_guest(content: Json) -> str:
    spec = (content.get("template") or {}).get("spec") or {}
    return meaning({**content, "template": (spec.get("template") or {}).get("spec") or {}})


def _plain(value: Any) -> Any:
    match value:
        case dict():
            # An empty object can be a choice (`masquerade: {}`), an empty list can't.
            return {key: _plain(each) for key, each in value.items() if each is not None and each != []}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value


def parse_revision(document: Json) -> Revision:
    """The view of a ControllerRevision."""
    metadata = document["metadata"]
    owner: Json = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    content = document.get("data") or {}
    number = int(document.get("revision") or 0)
    return Revision(metadata["name"], owner.get("uid", ""), number, meaning(content), _of_guest(content))


def current_revision(pool_name: str, pool_uid: str, content: Json, known: Iterable[Revision]) -> tuple[Revision, bool]:
    """The revision of this content, and whether it's written down already."""
    wanted = meaning(content)
    mine = [each for each in known if each.owner == pool_uid]
    for each in mine:
        if each.meaning == wanted:
            return each, True
    # The UID is part of the name, so that a pool that is made anew never meets its predecessor's.
    name = f"{pool_name}-{hashlib.sha256(f'{pool_uid} {wanted}'.encode()).hexdigest()[:10]}"
    number = max((each.number for each in mine), default=0) + 1
    return Revision(name, pool_uid, number, wanted, _of_guest(content)), False


def document(of: Revision, pool: Json, content: Json) -> Json:
    """`pool` is the owner reference of the pool."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "namespace": pool["namespace"],
            "name": of.name,
            "labels": {meta.POOL: pool["name"]},
            "ownerReferences": [pool["owner"]],
        },
        "revision": of.number,
        "data": content,
    }


def read(document: Json) -> dict[str, Any]:
    """The fields of a pool's spec that were written down."""
    content = document.get("data") or {}
    return {
        "template": content.get("template") or {},
        "name_generation": NameGeneration.model_validate(content.get("nameGeneration") or {}),
    }
