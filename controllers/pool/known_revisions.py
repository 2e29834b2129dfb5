"""The revisions that pools have: the stored ones, and that of the present template, which is hashed once."""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controllers.pool.pools import Pool
from controllers.pool.revision_content import content
from controllers.pool.revisions import Revision, new_revision, parse_revision, saved_or_new, without_owner
from controllers.shared.image_sources import ImageSources, Tracked
from controllers.shared.sources import Source
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.data_source_references import references
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, Key
from poolhouse.runtime.store import Store


def _by_pool(revision: Revision) -> Iterator[Hashable]:
    """By the namespace and the UID of the pool. Those without an owner have no UID."""
    yield revision.namespace, revision.pool_uid


REVISION_SOURCE = Source(CONTROLLER_REVISIONS, parse_revision, {"owner": _by_pool})


@dataclass(frozen=True)
class PoolRevisions:
    """The revisions of one pool."""

    stored: tuple[Revision, ...]
    current: Revision
    """the revision of the present template"""
    is_saved: bool
    """whether `current` is stored"""
    refused_references: Mapping[str, str]
    """why the pool does not get new images, by name in dataVolumeTemplates"""


@dataclass(frozen=True)
class KnownRevisions:
    stored: Store[Revision] = field(default_factory=REVISION_SOURCE.store)
    images: ImageSources = field(default_factory=ImageSources)
    _new: dict[Key, tuple[Json, Revision]] = field(default_factory=dict, repr=False, compare=False)
    """By pool, the content of its present template and the revision of it, without a number."""

    def of(self, pool: Pool) -> PoolRevisions:
        stored = self._stored(pool)
        tracked = _tracked(pool, stored)
        content = self._content(pool, tracked)
        if not self._is_known(pool, content):
            self._new[pool.key] = content, new_revision(pool.name, pool.uid, content, pool.namespace)
        current, is_saved = saved_or_new(self._new[pool.key][1], stored)
        return PoolRevisions(stored, current, is_saved, self.images.refusals(tracked, pool.status.conditions))

    async def prepare(self, pool: Pool, run: Callable[..., Awaitable[Revision]]) -> None:
        """Asks for the rights of the authors, and hashes a new template with `run`: a large one takes longer than a
        plan."""
        tracked = _tracked(pool, self._stored(pool) if pool.tracked else ())
        await self.images.ask(tracked)
        content = self._content(pool, tracked)
        if not self._is_known(pool, content):
            self._new[pool.key] = content, await run(new_revision, pool.name, pool.uid, content, pool.namespace)

    def forget(self, key: Key) -> None:
        self._new.pop(key, None)

    def _stored(self, pool: Pool) -> tuple[Revision, ...]:
        lost = without_owner(pool.name, pool.uid, self.stored.by("owner", (pool.namespace, "")))
        return (*self.stored.by("owner", (pool.namespace, pool.uid)), *lost)

    def _is_known(self, pool: Pool, content: Json) -> bool:
        known = self._new.get(pool.key)
        return known is not None and known[1].pool_uid == pool.uid and known[0] == content

    def _content(self, pool: Pool, tracked: Tracked) -> Json:
        """What determines the VMs of the pool now."""
        images = self.images.images(tracked, pool.status.conditions) if pool.tracked else {}
        return content(pool.spec, images)


def _tracked(pool: Pool, stored: Sequence[Revision]) -> Tracked:
    """A pool has the images of the revision that its status names. If the status is not written yet, it has those of
    its newest revision."""
    newest = max(stored, key=lambda each: each.number, default=None)
    last = next((each for each in stored if each.name == pool.status.update_revision), newest)
    images = last.sources_of(references(pool.spec.template, "")) if pool.tracked and last is not None else {}
    return Tracked(pool.tracked, images, pool.authors)
