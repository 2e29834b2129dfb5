"""What the writes of one plan have in common."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from controllers.pool.actions import Action
from controllers.pool.events import PoolEvents
from controllers.pool.pools import Pool
from controllers.pool.revision_content import read
from controllers.pool.snapshot import PoolSnapshot
from controllers.sets import writes
from controllers.shared.subresources import Subresources
from controllers.shared.vm import parse_vm
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Conflict, NotFound
from poolhouse.runtime.resource import CONTROLLER_REVISIONS, VMS

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
                document = await self.api.get(CONTROLLER_REVISIONS, *key)
            except NotFound:
                return None
            self._known[key] = read(document)
            while len(self._known) > MAX_TEMPLATES:
                del self._known[next(iter(self._known))]
        return replace(snapshot.pool, spec=snapshot.pool.spec.model_copy(update=self._known[key]))


@dataclass(frozen=True)
class Writing(writes.Writing[Pool]):
    snapshot: PoolSnapshot
    subresources: Subresources
    events: PoolEvents
    templates: Templates
    blocked: list[str] = field(default_factory=list)
    """names of VMs that are not created, because disks of an earlier VM of the name still exist"""
    claim_users: dict[str, str] = field(default_factory=dict)
    """what uses the claims of the namespace, once a write has asked"""

    @property
    def namespace(self) -> str:
        return self.owner.namespace


async def read_member(api: Api, namespace: str, pool_uid: str, name: str, uid: str = "") -> Json:
    """Reads a VM of the pool again, for a write that the resourceVersion of the plan does not protect.

    Raises Conflict if the VM has left the pool since the plan, is being deleted, or has another UID than `uid`."""
    live = await api.get(VMS, namespace, name)
    if parse_vm(live).owner_uid != pool_uid:
        raise Conflict(f"{name} has left the pool", status=409)
    if "deletionTimestamp" in live["metadata"] or uid not in ("", live["metadata"]["uid"]):
        raise Conflict(f"{name} is being deleted, or is another VM now", status=409)
    return live


def in_namespace(call: Callable[[Api, str, A], Awaitable[None]]) -> Callable[[Writing, A], Awaitable[None]]:
    """A write that needs only the client and the namespace."""

    async def write(to: Writing, action: A) -> None:
        await call(to.api, to.namespace, action)

    return write
