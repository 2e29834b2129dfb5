"""Revisions of a pool's template, stored as ControllerRevisions and compared by content.

The controller computes the hashes of both revisions from the stored documents. A release with another hash function
therefore restarts no VMs.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from apimachinery.owner_references import controller_of
from apimachinery.unstructured import Json
from kinds.pool import NameGeneration, PoolSpec


@dataclass(frozen=True, slots=True)
class Revision:
    name: str
    pool_uid: str
    """The UID of the pool. An earlier pool of the same name may have left revisions."""
    number: int
    template_hash: str
    vmi_hash: str = ""
    """Hash of the VMI's spec. A change of this hash requires a restart."""

    @property
    def label(self) -> str:
        """The label value of VMs of this revision, which is short because a label value has at most 63 characters."""
        return self.name.rpartition("-")[2]


def content(spec: PoolSpec) -> Json:
    """The part of a pool's spec that determines its VMs."""
    postfixes = {name: True for name, asked in spec.name_generation.json().items() if asked}
    return {"template": spec.template, "nameGeneration": postfixes}


def content_hash(value: Json) -> str:
    """The hash of a document. Null and empty lists count as absent, so equivalent documents have equal hashes."""
    text = json.dumps(_normalized(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_revision(document: Json) -> Revision:
    owner = controller_of(document) or {}
    content = document.get("data") or {}
    number = int(document.get("revision") or 0)
    name = document["metadata"]["name"]
    return Revision(name, owner.get("uid", ""), number, content_hash(content), _vmi_hash(content))


def current_revision(pool_name: str, pool_uid: str, content: Json, known: Iterable[Revision]) -> tuple[Revision, bool]:
    """The revision with this content, and whether it is saved already."""
    wanted = content_hash(content)
    own = [each for each in known if each.pool_uid == pool_uid]
    for each in own:
        if each.template_hash == wanted:
            return each, True
    # The name contains the UID, so that a new pool does not use revisions of an earlier pool of the same name.
    name = f"{pool_name}-{hashlib.sha256(f'{pool_uid} {wanted}'.encode()).hexdigest()[:10]}"
    number = max((each.number for each in own), default=0) + 1
    return Revision(name, pool_uid, number, wanted, _vmi_hash(content)), False


def read(document: Json) -> dict[str, Any]:
    content = document.get("data") or {}
    return {
        "template": content.get("template") or {},
        "name_generation": NameGeneration.model_validate(content.get("nameGeneration") or {}),
    }


def _vmi_hash(content: Json) -> str:
    spec = (content.get("template") or {}).get("spec") or {}
    return content_hash({**content, "template": (spec.get("template") or {}).get("spec") or {}})


def _normalized(value: Any) -> Any:
    match value:
        case dict():
            # An empty object can be a choice (`masquerade: {}`), but an empty list cannot.
            return {key: _normalized(each) for key, each in value.items() if each is not None and each != []}
        case list():
            return [_normalized(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value
