"""Remembers the revisions of the present templates of pools, so that a template is hashed once."""

from dataclasses import dataclass, field

from controllers.pool.revisions import Revision, new_revision
from controllers.pool.snapshot import Pool
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import Key


@dataclass
class Contents:
    _known: dict[Key, tuple[Json, Revision]] = field(default_factory=dict)

    def is_known(self, pool: Pool, content: Json) -> bool:
        """Whether the content of the pool has a revision already."""
        known = self._known.get(pool.key)
        return known is not None and known[1].pool_uid == pool.uid and known[0] == content

    def remember(self, pool: Pool, content: Json, revision: Revision) -> None:
        self._known[pool.key] = content, revision

    def revision(self, pool: Pool, content: Json) -> Revision:
        """The revision without a number."""
        if not self.is_known(pool, content):
            self.remember(pool, content, new_revision(pool.name, pool.uid, content, pool.namespace))
        return self._known[pool.key][1]

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)
