"""The fields that instance types give to the VMs of a pool.

KubeVirt compares the template that a VMI was started from with the present one after it has expanded both by their
instance types, and changes CPUs and memory of the running VM by the expanded values (`syncRestartRequired`,
`handleCPUChangeRequest`, `handleMemoryHotplugRequest` in pkg/virt-controller/watch/vm/vm.go of v1.5.0 to v1.9.0-rc.2).
A snapshot therefore has expanded revisions while VMs of a pool differ in their revision. For an instance type without
`revisionName`, KubeVirt takes the object as it is now.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from controllers.pool.revision_content import vmi_parts
from controllers.pool.revisions import Revision
from controllers.pool.snapshot import PoolSnapshot
from controllers.shared.vm import VM
from defaulter.instancetypes import MatchedSpecs, expand
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kubevirt.live_updates import LiveFields, read_fields
from poolhouse.runtime.api import Api
from poolhouse.runtime.instancetypes import InstancetypeReader
from poolhouse.runtime.resource import Key

ReadSpecs = Callable[[Json, str], Awaitable[Json]]
"""Returns `instancetype` and `preference` of a VM in a namespace, and `unread`, which says why one is missing."""


@dataclass
class _OfPool:
    """What is known of the revisions of one pool."""

    specs: dict[str, MatchedSpecs] = field(default_factory=dict)
    """by the instance type and the preference that a template names"""
    unread: dict[str, str] = field(default_factory=dict)
    inferred: dict[str, str] = field(default_factory=dict)
    """by name of the revision, the matchers of its VMs"""
    expanded: dict[str, tuple[Revision, MatchedSpecs, Revision]] = field(default_factory=dict)
    """by name of the revision, what it became with which specs: a large template takes longer than a plan"""

    def keep(self, matchers: set[str], revisions: set[str]) -> None:
        of_matchers: tuple[dict[str, Any], ...] = self.specs, self.unread
        of_revisions: tuple[dict[str, Any], ...] = self.inferred, self.expanded
        for tables, names in ((of_matchers, matchers), (of_revisions, revisions)):
            for table in tables:
                for name in table.keys() - names:
                    del table[name]

    def copy(self) -> Self:
        return replace(self, **{each.name: dict(getattr(self, each.name)) for each in fields(self)})


@dataclass
class KnownInstancetypes:
    """The instance types and preferences of pools, as they were last read. While VMs move from one to another, the
    former one may be deleted."""

    read_specs: ReadSpecs | None = None
    _pools: dict[Key, _OfPool] = field(default_factory=dict)
    """by pool. A pool is left out while all its VMs have one revision."""

    @classmethod
    def of(cls, api: Api) -> Self:
        return cls(InstancetypeReader(api, api.monotonic).read)

    def forget(self, pool: Key) -> None:
        self._pools.pop(pool, None)

    async def read(self, snapshot: PoolSnapshot) -> bool:
        """Reads what `expanded` needs for the pool: nothing while all VMs have one revision. Returns whether it has
        read, so that the pool must be observed again."""
        has_read, revisions = False, tuple(_revisions_to_expand(snapshot))
        if not revisions:
            self.forget(snapshot.pool.key)
            return False
        known, needed = self._pools.setdefault(snapshot.pool.key, _OfPool()), set[str]()
        for revision in revisions:
            matchers = _matchers(known, snapshot, revision)
            if self.read_specs is None or not matchers:
                continue
            needed.add(matchers)
            found = await self.read_specs({"spec": json.loads(matchers)}, snapshot.pool.namespace)
            known.unread[matchers] = found.get("unread") or ""
            if not known.unread[matchers]:
                known.specs[matchers] = MatchedSpecs(found.get("instancetype"), found.get("preference"))
            has_read = True
        known.keep(needed, {each.name for each in (*snapshot.revisions, snapshot.revision)})
        return has_read

    async def complete(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        """The snapshot for somebody who does not read what `expanded` needs beforehand. Nothing is remembered, because
        the pool may not exist."""
        key = snapshot.pool.key
        known = KnownInstancetypes(self.read_specs, {key: self._pools[key].copy()} if key in self._pools else {})
        return known.expanded(snapshot) if await known.read(snapshot) else snapshot

    def expanded(self, snapshot: PoolSnapshot) -> PoolSnapshot:
        """The snapshot whose revisions and VMs have the fields that their instance types give."""
        found, unknown = dict[str, Revision](), dict[str, str]()
        known = self._pools.get(snapshot.pool.key) or _OfPool()
        for each in _revisions_to_expand(snapshot):
            matchers = _matchers(known, snapshot, each)
            if matchers in known.specs:
                found[each.label] = _expand(known, each, known.specs[matchers])
            else:
                unknown[each.label] = known.unread.get(matchers) or "its instance type is not known yet"
        if not found and not unknown:
            return snapshot
        return replace(
            snapshot,
            revision=found.get(snapshot.revision.label, snapshot.revision),
            revisions=tuple(found.get(each.label, each) for each in snapshot.revisions),
            vms=tuple(_with_fields(vm, snapshot.revision, found) for vm in snapshot.vms),
            unread=unknown,
        )


def _expand(of: _OfPool, revision: Revision, specs: MatchedSpecs) -> Revision:
    known = of.expanded.get(revision.name)
    if known is None or known[0] is not revision or known[1] != specs:
        known = of.expanded[revision.name] = revision, specs, _expand_revision(revision, specs)
    return known[2]


def _matchers(of: _OfPool, snapshot: PoolSnapshot, revision: Revision) -> str:
    """The instance type and the preference of the revision's VMs. KubeVirt replaces those that it infers from a volume
    by their names when it stores a VM. Empty if no VM tells them."""
    if all(each.get("name") for each in json.loads(revision.matchers).values() if each):
        return revision.matchers
    named = {vm.matchers for vm in snapshot.active if vm.revision == revision.label and vm.matchers}
    if len(named) == 1:
        of.inferred[revision.name] = named.pop()
    return of.inferred.get(revision.name, "")


def _revisions_to_expand(snapshot: PoolSnapshot) -> Iterator[Revision]:
    """The revisions with instance types that the VMs have, if these are several."""
    revisions = snapshot.revision, *snapshot.revisions
    if snapshot.pool.live_update == "Never" or not any(each.matchers for each in revisions):
        return
    labels = {snapshot.revision.label}
    for vm in snapshot.active:
        if vm.vmi is not None and vm.vmi.running:
            labels |= {vm.revision, vm.vmi.revision}
    known: Mapping[str, Revision] = snapshot.revisions_by_label
    found = [each for label in sorted(labels) if (each := known.get(label)) is not None]
    if len(found) > 1:
        yield from (each for each in found if each.matchers)


def _with_fields(vm: VM, wanted: Revision, expanded: Mapping[str, Revision]) -> VM:
    """The VM with the fields that its instance type gives. A VM whose guest has what its VMI asks for keeps those: an
    instance type that was edited since changes no VM that names it."""
    has = expanded.get(vm.revision)
    if has is None:
        return vm
    given, guest = has.given, vm.vmi.guest if vm.vmi is not None else None
    started = vm.vmi is not None and vm.vmi.revision == vm.revision == wanted.label
    if guest is not None and started and not vm.restart_required and guest.spec == guest.shown:
        given = LiveFields(guest.spec.sockets, guest.spec.memory, guest.spec.placement if given.placement else "")
    live = replace(vm.live, sockets=vm.live.sockets or given.sockets, memory=vm.live.memory or given.memory)
    return replace(vm, live=replace(live, placement=given.placement) if given.placement else live)


def _expand_revision(revision: Revision, specs: MatchedSpecs) -> Revision:
    """The revision with the template that KubeVirt makes of it by the instance type. Its preference still counts as a
    field of its own, because a change of it requires a restart."""
    spec = at(revision.expandable, "template", "spec")
    plain = {key: value for key, value in spec.items() if key != "instancetype"}
    found = {**plain, "template": expand(spec["template"], specs)}
    content = {**revision.expandable, "template": {**revision.expandable["template"], "spec": found}}
    vmi_hash, restart_hash, devices = vmi_parts(content)
    live = read_fields(at(found, "template", "spec"))
    adds = live.placement != read_fields(at(plain, "template", "spec")).placement
    given = replace(live, placement=live.placement if adds else "")
    return replace(revision, vmi_hash=vmi_hash, restart_hash=restart_hash, devices=devices, live=live, given=given)
