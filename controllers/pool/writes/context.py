"""What the writes of one plan have in common."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from controllers.pool import revisions
from controllers.pool.actions import Action
from controllers.pool.events import PoolEvents
from controllers.pool.observe import REVISIONS
from controllers.pool.snapshot import Pool, PoolSnapshot
from controllers.sets.write_batches import Outcome, WriteBatches
from controllers.shared.creation import DefaultingCreator
from controllers.shared.subresources import Subresources
from runtime.api import Api
from runtime.batch_writer import MAX_BATCH_SIZE
from runtime.errors import NotFound

MAX_TEMPLATES = 100
"""How many revisions of all pools are kept in memory. The name of a revision contains the hash of its contents."""

A = TypeVar("A", bound=Action)


@dataclass
class Templates:
    """The templates of revisions, which the informers do not keep."""

    api: Api
    _known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    async def pool_with_revision(self, snapshot: PoolSnapshot, label: str) -> Pool | None:
        """The pool with the template of this revision, or None if the revision does not exist."""
        if label not in snapshot.revisions_by_label:
            return None
        key = snapshot.pool.namespace, snapshot.revisions_by_label[label].name
        if key not in self._known:
            try:
                document = await self.api.get(REVISIONS, *key)
            except NotFound:
                return None
            self._known[key] = revisions.read(document)
            while len(self._known) > MAX_TEMPLATES:
                del self._known[next(iter(self._known))]
        return replace(snapshot.pool, spec=snapshot.pool.spec.model_copy(update=self._known[key]))


@dataclass(frozen=True)
class Writing:
    """The writes of one plan."""

    api: Api
    snapshot: PoolSnapshot
    batches: WriteBatches[Pool]
    creator: DefaultingCreator
    subresources: Subresources
    events: PoolEvents
    templates: Templates
    blocked: list[str] = field(default_factory=list)
    """names of VMs that are not created, because disks of an earlier VM of the name still exist"""
    claim_users: dict[str, str] = field(default_factory=dict)
    """what uses the claims of the namespace, once a write has asked"""

    @property
    def pool(self) -> Pool:
        return self.snapshot.pool

    @property
    def namespace(self) -> str:
        return self.snapshot.pool.namespace


Send = Callable[[Writing, Sequence[Any]], Awaitable[Outcome]]
"""Makes the requests of all actions of one type in a plan."""


def each(call: Callable[[Writing, A], Awaitable[None]], *, quiet: bool = False, in_bursts: bool = False) -> Send:
    """Makes the requests of the actions one by one, in batches. `quiet` omits events of success, and `in_bursts` makes
    no more requests at once than the pool's burst."""

    async def send(to: Writing, actions: Sequence[A]) -> Outcome:
        most = to.snapshot.burst if in_bursts else MAX_BATCH_SIZE
        return await to.batches.send(to.pool, actions, partial(call, to), max_in_flight=most, quiet=quiet)

    return send


def in_namespace(call: Callable[[Api, str, A], Awaitable[None]]) -> Callable[[Writing, A], Awaitable[None]]:
    """A write that needs only the client and the namespace."""

    async def write(to: Writing, action: A) -> None:
        await call(to.api, to.namespace, action)

    return write
