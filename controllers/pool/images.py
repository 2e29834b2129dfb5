"""The images of DataSources that a pool follows, and whether the authors of its references may still get them."""

from collections.abc import Callable, Iterable

from controllers.pool.revisions import Revision
from controllers.pool.snapshot import Pool
from controllers.shared.data_sources import DATA_SOURCES, DataSource, Sources, changed_sources, resolve_sources
from controllers.shared.reference_rights import Question, ReferenceRights, last_refusals, questions
from poolhouse.api.kinds.pool import PoolSpec
from poolhouse.api.kinds.pool_strategies import UpdateProactive
from poolhouse.api.kubevirt.data_source_references import references
from poolhouse.runtime.resource import Key

Find = Callable[[Key], DataSource | None]


def tracked(spec: PoolSpec, namespace: str) -> dict[str, Key]:
    """The DataSources that the pool tracks, by name in dataVolumeTemplates."""
    strategy = spec.update_strategy.chosen
    tracks = isinstance(strategy, UpdateProactive) and strategy.track_data_sources
    return references(spec.template, namespace) if tracks else {}


def sources_of(pool: Pool, revisions: Iterable[Revision], find: Find, rights: ReferenceRights | None) -> Sources:
    """The images that VMs of the pool get now. `revisions` are those of the pool."""
    keys = tracked(pool.spec, pool.namespace)
    if not keys:
        return {}
    refused = refused_references(pool, revisions, find, rights)
    return resolve_sources(keys, find, _last_sources(pool, revisions), refused)


def questions_of(pool: Pool, revisions: Iterable[Revision], find: Find) -> dict[str, Question]:
    """What the controller asks before the pool gets new images, by name in dataVolumeTemplates."""
    if not pool.authors:
        return {}
    changed = changed_sources(tracked(pool.spec, pool.namespace), find, _last_sources(pool, revisions))
    return questions(pool.authors, DATA_SOURCES, changed)


def refused_references(
    pool: Pool, revisions: Iterable[Revision], find: Find, rights: ReferenceRights | None
) -> dict[str, str]:
    """Why the pool does not get new images. Without rights to ask about, as its status says."""
    asked = questions_of(pool, revisions, find)
    if rights is None:
        return last_refusals(pool.status.conditions, asked)
    return rights.refusals(asked, _last_sources(pool, revisions)) if asked else {}


def _last_sources(pool: Pool, revisions: Iterable[Revision]) -> Sources:
    """The images of the revision that the status names. A pool whose status is not written yet has its newest one."""
    found = tuple(revisions)
    newest = max(found, key=lambda each: each.number, default=None)
    last = next((each for each in found if each.name == pool.status.update_revision), newest)
    return last.sources_of(references(pool.spec.template, "")) if last is not None else {}
