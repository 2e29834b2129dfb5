"""Reads the domains of running VMs, and notes in their VMIs the PCI addresses that KubeVirt does not show.

When such a VM stops, its spec gets these addresses (`defaulter.adoption`). The domain must be read before, and only if
the VM needs it: a spec without an open field, or a VMI whose devices are noted, causes no request. A read runs virsh in
the launcher Pod, so only few run at once, in turns of the namespaces, and a Pod that does not answer waits long for the
next.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from controllers.defaulting.observe import VM
from controllers.shared.vm_reasons import VMEvent
from controllers.shared.vmi import ObjectView
from defaulter.contract import (
    GUEST_ADDRESSES,
    MAX_DOMAIN_BYTES,
    InvalidDomain,
    Reading,
    forget_addresses,
    needed_reading,
    note_addresses,
    read_domain,
)
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import KUBEVIRT_CREATED_BY
from poolhouse.api.kubevirt.launcher import COMPUTE, domain_name, dump_command, running_pod
from poolhouse.runtime import pod_exec
from poolhouse.runtime.api import Api, find
from poolhouse.runtime.backoff import Backoff
from poolhouse.runtime.controller import Controller, RetryWithBackoff
from poolhouse.runtime.errors import Forbidden
from poolhouse.runtime.events import EventRecorder, object_reference
from poolhouse.runtime.informer import Informer
from poolhouse.runtime.resource import PODS, VMIS, VMS, Key

ALL_NAMESPACES = "*"
READ_SECONDS = 10.0
READS_PER_NAMESPACE = 2
RETRY = Backoff(base_seconds=5, cap_seconds=3600)
"""long pauses, because each attempt starts a process beside the guest"""


@dataclass(frozen=True, slots=True)
class Guest(ObjectView):
    """Whether the domain of a VMI is to be read."""

    reading: Reading


def parse_guest(vmi: Json) -> Guest:
    metadata = vmi["metadata"]
    return Guest(metadata.get("namespace", ""), metadata["name"], metadata["uid"], needed_reading(vmi))


class DomainReader:
    """While all domains that VMs need are read, it sends no requests except its watch."""

    def __init__(
        self, api: Api, events: EventRecorder, namespaces: frozenset[str], wanted: Callable[[Key], bool]
    ) -> None:
        """`namespaces` are those in which it may read; `wanted` says whether a VM needs its domain read."""
        self.guests: Informer[Guest] = Informer(api, VMIS, parse_guest, indexes={"unread": _by_namespace})
        self.controller: Controller[Key] = Controller(
            "domains", self.reconcile, workers=READS_PER_NAMESPACE, backoff=RETRY, metrics=api.metrics
        )
        self._api, self._events = api, events
        self._namespaces, self._wanted = namespaces, wanted
        self._reported: set[Key] = set()
        """VMs whose failure has an event"""
        self.guests.subscribe(self._guest_changed)

    def vm_changed(self, old: VM | None, new: VM | None) -> None:
        if new is not None and new.undefaulted:
            self._enqueue(self.guests.store.get(new.key))

    def scope_changed(self, namespace: str | None = None) -> None:
        """Queues the guests that were not read, of one namespace or of all. Poolhouse may default other VMs now,
        because the labels of the namespace or the selector of the webhook have changed."""
        found = self.guests.store.all() if namespace is None else self.guests.store.by("unread", namespace)
        for guest in found:
            self._enqueue(guest)

    def _guest_changed(self, old: Guest | None, new: Guest | None) -> None:
        self._enqueue(new)
        if new is None and old is not None:
            self._reported.discard(old.key)

    def _enqueue(self, guest: Guest | None) -> None:
        if guest is not None and guest.reading and self._may_read(guest.namespace):
            self.controller.enqueue(guest.key)

    def _may_read(self, namespace: str) -> bool:
        return ALL_NAMESPACES in self._namespaces or namespace in self._namespaces

    async def reconcile(self, key: Key) -> None:
        guest = self.guests.store.get(key)
        if guest is None or not guest.reading or not self._wanted(key):
            return
        vmi = await find(self._api, VMIS, *key)
        if vmi is None:
            return
        match needed_reading(vmi):
            case "forget":
                note = forget_addresses(vmi)
            case "read":
                note = note_addresses(vmi, await self._read(key, vmi))
            case _:
                return
        change = {"metadata": {"uid": vmi["metadata"]["uid"], "annotations": {GUEST_ADDRESSES: note}}}
        await self._api.patch(VMIS, *key, change)

    async def _read(self, key: Key, vmi: Json) -> Json:
        selector = f"{KUBEVIRT_CREATED_BY}={vmi['metadata']['uid']}"
        pods, _ = await self._api.list(PODS, key[0], label_selector=selector, from_cache=True)
        pod = running_pod(vmi, pods)
        if pod is None:
            raise RetryWithBackoff("its launcher Pod does not run")
        try:
            text = await pod_exec.run(
                self._api,
                key[0],
                pod,
                COMPUTE,
                dump_command(vmi),
                max_bytes=MAX_DOMAIN_BYTES,
                timeout_seconds=READ_SECONDS,
            )
            found = read_domain(text.decode(errors="replace"), domain_name(vmi))
        except (pod_exec.CommandFailed, InvalidDomain, Forbidden) as error:
            await self._report(key, str(error))
            raise RetryWithBackoff(f"cannot read the domain in Pod {pod}: {error}") from error
        self._reported.discard(key)
        return found

    async def _report(self, key: Key, why: str) -> None:
        if key in self._reported:
            return
        self._reported.add(key)
        reference = object_reference(await self._api.get(VMS, *key))
        note = f"cannot read the PCI addresses of the guest: {why}"
        self._events.emit(reference, "Warning", VMEvent.FAILED_DOMAIN_READ, note, action="ReadDomain")


def _by_namespace(guest: Guest) -> Iterator[Hashable]:
    if guest.reading:
        yield guest.namespace
