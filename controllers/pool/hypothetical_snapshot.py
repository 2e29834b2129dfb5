"""The snapshot of a pool that does not exist, or not in this form."""

from dataclasses import replace

from controllers.pool.actions.snapshots import LATEST_TIME
from controllers.pool.known_revisions import KnownRevisions
from controllers.pool.observe import observe
from controllers.pool.observed_disks import oldest_with
from controllers.pool.pools import InvalidPool, Pool, parse_pool
from controllers.pool.snapshot import PoolSnapshot
from controllers.pool.sources import POOL_SOURCE
from controllers.pool.stores import Stores
from controllers.shared.data_sources import DataSource
from controllers.shared.image_sources import ImageSources
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.resource import Key

NEW = "(new)"
"""The UID of a pool that does not exist. VMs without an owner have an empty one, and are not its VMs."""


def hypothetical_snapshot(stores: Stores, document: Json, burst: int) -> PoolSnapshot | InvalidPool:
    """The snapshot of the pool in the document, with the existing VMs and pools."""
    metadata = {"creationTimestamp": LATEST_TIME, **document["metadata"]}
    metadata["uid"] = metadata.get("uid") or NEW
    known = stores.pools.get((metadata.get("namespace", ""), metadata["name"]))
    if known is not None:
        metadata |= {
            "uid": known.uid,
            "creationTimestamp": known.created_at if isinstance(known, Pool) else LATEST_TIME,
        }
        document = {**document, "status": known.status.json()}
    pool = parse_pool({**document, "metadata": metadata})
    if isinstance(pool, Pool):
        pool = replace(pool, authors=known.authors if isinstance(known, Pool) else {})
    pools = POOL_SOURCE.store()
    pools.put(pool.key, pool)
    for disk in pool.disks if isinstance(pool, Pool) else ():
        oldest = oldest_with(stores, disk)
        if oldest is not None and oldest.key != pool.key:
            pools.put(oldest.key, oldest)
    revisions = KnownRevisions(stores.revisions.stored, _images(stores.revisions.images, pool, known))
    hypothetical = replace(stores, pools=pools, revisions=revisions)
    found = observe(hypothetical, pool.key, synced=True, failure=None, burst=burst)
    assert found is not None
    return found


def _images(images: ImageSources, pool: Pool | InvalidPool, known: Pool | InvalidPool | None) -> ImageSources:
    """Of those that the controllers see, the images of the pool's namespace and those that the stored pool follows.
    Nobody has asked whether the caller may get another DataSource, and the names of new disks tell its image."""
    if images.rights is None:  # the caller has read them
        return images
    followed = frozenset(known.tracked.values()) if isinstance(known, Pool) else frozenset[Key]()

    def find(key: Key) -> DataSource | None:
        return images.find(key) if key[0] == pool.namespace or key in followed else None

    return replace(images, find=find)
