"""Who wrote the references of an object: the annotation `poolhouse.dev/reference-authors`.

Admission asks whether an author may get what a reference names. The controllers read it again later, with their own
rights, and ask for the same author before they use what it names then. Admission alone writes the record: what a client
sends is replaced. An object that was stored before this record has none, and the controllers do not ask about it.

The record has no UID and no `extra` of the user: RBAC decides by name and groups, and `extra` may contain credentials,
which readers of the object must not see.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from poolhouse.api.apimachinery.unstructured import Json

TAKE_OVER = "me"
"""The value with which a user asks to become the author of all references of the object."""
MAX_BYTES = 32 * 1024
"""Limit of the record. The API server allows 256 KiB for all annotations of an object."""


@dataclass(frozen=True)
class Author:
    username: str
    groups: tuple[str, ...] = ()

    @property
    def user(self) -> Json:
        """The user as an admission request has it."""
        return {"username": self.username, "groups": list(self.groups)}


def author_of(user: Json) -> Author:
    """The user of an admission request."""
    return Author(str(user.get("username") or ""), tuple(map(str, user.get("groups") or ())))


def name_reference(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}"


def record(kept: Mapping[str, Author], new: Iterable[str], author: Author) -> str:
    """The annotation for references that keep their authors, and references that this author has written. If the record
    would be too long, it leaves out the groups of the author."""
    for each in (author, Author(author.username)):
        text = _format({**kept, **dict.fromkeys(new, each)})
        if len(text.encode()) <= MAX_BYTES:
            return text
    return text


def _format(authors: Mapping[str, Author]) -> str:
    """The references by author, or an empty string without references."""
    found: dict[Author, list[str]] = {}
    for reference, author in sorted(authors.items()):
        found.setdefault(author, []).append(reference)
    entries = [
        {"username": author.username, "groups": author.groups, "references": references}
        for author, references in found.items()
    ]
    return json.dumps(entries, separators=(",", ":")) if entries else ""


def read_record(annotation: object) -> dict[str, Author]:
    """The authors by reference; none for a text that admission has not written."""
    try:
        entries = json.loads(annotation) if isinstance(annotation, str) and annotation else ()
        return {
            reference: Author(each["username"], tuple(each["groups"]))
            for each in entries
            for reference in each["references"]
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
