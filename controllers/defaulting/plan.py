"""Decides whether to fill the hardware of a VM now. The webhook was called for the VM, or should have been.

The webhook has handled a VM with the annotation poolhouse.dev/undefaulted. Other VMs should have been handled if the
configuration selects them and is not newer. Older VMs are not filled, because their guests know other hardware. The
webhook fills an older VM when its spec changes while it is halted, with the UUID that the guest knows. `virtctl start`
is such a change, except with the run strategies Manual and RerunOnFailure.

KubeVirt chooses MAC addresses anew at each start. An older VM that stops gets those of its guest, so that its next
start is like the last one. At a stop that changes the spec, as `virtctl stop` does, the webhook writes them. At other
stops (`virtctl restart`, a shutdown in the guest, an eviction, a lost node) the controller does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.defaulting.observe import VM, DefaultingSnapshot
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds.meta import DEFAULTING, DISABLED
from poolhouse.manifests.webhooks import DEFAULTING_WEBHOOK, OWN_MATCH_CONDITIONS

OLDER = "it is older than the webhook configuration"
RUNNING_SECONDS = 4 * 3600.0
"""Interval of checks of a running VM, in case the controller misses the event of its stop."""


@dataclass(frozen=True)
class FillHardware:
    """Copies the hardware of a guest that stops, as `KeepGuest` does, and lets the defaulter fill the other fields."""

    reason: str


STOPS = "the VM stops, and KubeVirt would choose these values anew at its next start"


@dataclass(frozen=True)
class KeepGuest:
    """Copies the hardware of the running guest into the VM's spec, and sets no other default."""


@dataclass(frozen=True)
class RemoveAnnotation:
    """Removes the annotation poolhouse.dev/undefaulted, which no longer applies."""

    reason: str


@dataclass(frozen=True)
class Wait:
    seconds: float | None
    """Time until the next check. None waits for a change."""
    reason: str


Action = FillHardware | KeepGuest | RemoveAnnotation | Wait


def plan(snapshot: DefaultingSnapshot) -> Action:
    vm = snapshot.vm
    if vm.deleting:
        return Wait(None, "the VM is being deleted")
    if not vm.undefaulted:
        return _stop(vm.annotated, "all hardware fields are filled")
    if snapshot.ineligible == OLDER and (vm.stopping or snapshot.vmi == "finishing"):
        return KeepGuest()
    if snapshot.ineligible is not None:
        return _stop(vm.annotated, snapshot.ineligible)
    if snapshot.vmi == "running":
        return Wait(RUNNING_SECONDS, "the VM runs, and a change of its hardware would require a restart")
    return FillHardware("the VM has no VMI" if snapshot.vmi == "absent" else "the VMI is finishing")


def _stop(annotated: bool, reason: str) -> Action:
    return RemoveAnnotation(reason) if annotated else Wait(None, reason)


def needs_domain(vm: VM, ineligible: str | None) -> bool:
    """Whether the PCI addresses in the domain of the running VM are of use: when it stops, they are written."""
    return vm.undefaulted and not vm.deleting and ineligible in (None, OLDER)


@dataclass(frozen=True)
class WebhookScope:
    """The objects for which the API server calls the webhook, by Poolhouse's MutatingWebhookConfiguration."""

    created_at: str
    namespace_selector: Json | None
    object_selector: Json | None
    """None selects nothing."""
    conditional: bool
    """Whether the configuration has additional matchConditions, which only the API server can evaluate."""

    def selects(self, vm: VM, namespace_labels: Mapping[str, str]) -> bool:
        return matches(self.namespace_selector, namespace_labels) and matches(self.object_selector, dict(vm.labels))


def parse_scope(document: Json) -> WebhookScope:
    created_at = document["metadata"]["creationTimestamp"]
    entry = next((each for each in document.get("webhooks") or () if each["name"] == DEFAULTING_WEBHOOK), None)
    if entry is None:
        return WebhookScope(created_at, None, None, conditional=False)
    conditions = {each["name"] for each in entry.get("matchConditions") or ()}
    return WebhookScope(
        created_at,
        entry.get("namespaceSelector") or {},
        entry.get("objectSelector") or {},
        conditional=bool(conditions - OWN_MATCH_CONDITIONS),
    )


def ineligible_reason(vm: VM, namespace_labels: Mapping[str, str], scope: WebhookScope | None) -> str | None:
    """Why the controller must not fill the VM, or None."""
    if namespace_labels.get(DEFAULTING) == DISABLED:
        return "its namespace opted out"
    if scope is not None and not scope.selects(vm, namespace_labels):
        return "the webhook configuration does not select it"
    if vm.annotated:
        return None
    if scope is None:
        return "there is no webhook configuration"
    if vm.created_at < scope.created_at:
        return OLDER
    if scope.conditional:
        return "additional matchConditions decide whether the webhook is called for it"
    return None
