"""What is known of a warm pool, for those who fill it and for those who take from it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from controllers.warmpool.hashing import made_from, template_hash
from controllers.warmpool.warm_vm import POOL_KIND, Owner, WarmVM
from kinds.model import Model
from kinds.warmpool import WarmPoolSpec, WarmPoolStatus
from runtime.resource import Resource
from runtime.store import Store

Json = dict[str, Any]

WARM_POOLS = Resource("poolhouse.dev", "v1alpha1", "virtualmachinewarmpools", POOL_KIND)

DEFAULT_PLACEMENT: Json = {"name": "default"}
"""the placement of a pool that names none"""


@dataclass(frozen=True)
class WarmPool:
    """Its machines are VirtualMachines, or instances of EC2."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: WarmPoolSpec
    status: WarmPoolStatus
    created_at: str = ""
    """creationTimestamp, which sorts as text"""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    resource_version: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def owner(self) -> Owner:
        return Owner(POOL_KIND, self.name, self.uid)

    @cached_property
    def template(self) -> Json:
        """What machines are made from: `template`, or `ec2`."""
        return self.spec.template or (_plain(self.spec.ec2) if self.spec.ec2 else {})

    @cached_property
    def placements(self) -> dict[str, Json]:
        """By name, as the API has them."""
        given = {each.name: _plain(each) for each in self.spec.places}
        return given or {DEFAULT_PLACEMENT["name"]: DEFAULT_PLACEMENT}

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Labels of machines of today's template, by placement."""
        return {name: template_hash(self._made_from, placement) for name, placement in self.placements.items()}

    @cached_property
    def template_hash(self) -> str:
        """Of the template alone, for people."""
        return template_hash(self._made_from)

    def current(self, m: WarmVM) -> bool:
        """Was it made from today's template, in a placement that is still one of the pool's?"""
        if m.template_hash == self.hashes.get(m.placement):
            return True
        placement = self.placements.get(m.placement)
        return placement is not None and made_from(m.template_hash, self._made_from, placement)

    @property
    def _made_from(self) -> Any:
        # Where an instance is made says its placement.
        return self.template.get("spec") if self.spec.template else {**self.template, "subnets": None}


@dataclass(frozen=True)
class InvalidWarmPool:
    """A pool whose spec is none: it went past admission, or past another release's. It is frozen as it is."""

    namespace: str
    name: str
    uid: str
    generation: int
    status: WarmPoolStatus
    problem: str
    created_at: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    resource_version: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def parse_warm_pool(document: Json) -> WarmPool | InvalidWarmPool:
    """The view of a VirtualMachineWarmPool."""
    metadata = document["metadata"]
    key = metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata.get("generation", 0)
    life = (
        metadata.get("creationTimestamp") or "",
        metadata.get("deletionTimestamp") is not None,
        tuple(metadata.get("finalizers") or ()),
        metadata.get("resourceVersion") or "",
    )
    try:
        status = WarmPoolStatus.model_validate(document.get("status") or {})
    except ValidationError:
        status = WarmPoolStatus()  # ours alone to write, and about to be written
    try:
        spec = WarmPoolSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        said = "; ".join(f"spec.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return InvalidWarmPool(*key, status, said, *life)
    if bool(spec.template) == bool(spec.ec2):
        return InvalidWarmPool(*key, status, "spec: give exactly one of template and ec2", *life)
    return WarmPool(*key, spec, status, *life)


def _plain(value: Model) -> Json:
    """As the API has it, without what says only the default: a field that a later release adds changes no hash."""
    return value.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def default_pool(pools: Iterable[WarmPool | InvalidWarmPool]) -> WarmPool | None:
    """The default among the pools of a namespace: of those that want to be, the oldest. Admission refuses a second one,
    but can't see two that come at once."""
    willing = [p for p in pools if isinstance(p, WarmPool) and p.spec.default and not p.deleting]
    return min(willing, key=lambda p: (p.created_at, p.uid), default=None)


def by_namespace(p: WarmPool | InvalidWarmPool) -> Iterator[Hashable]:
    yield p.namespace


def by_uid(p: WarmPool | InvalidWarmPool) -> Iterator[Hashable]:
    yield p.uid


def deletion_policy(pools: Store[WarmPool | InvalidWarmPool], uid: str) -> str | None:
    """Of the pool of this UID: "" where its spec can't be read, None where there is no such pool."""
    found = next(iter(pools.by("uid", uid)), None)
    if found is None:
        return None
    return found.spec.deletion_policy if isinstance(found, WarmPool) else ""
