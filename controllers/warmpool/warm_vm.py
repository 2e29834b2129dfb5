"""The view of a warm VM of either backend, and the view of its node."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from controllers.shared.sources import node_is_leaving, node_is_ready
from controllers.shared.vm import start_refusal
from controllers.shared.vmi import VMI, parse_count
from poolhouse.api.apimachinery.timestamps import parse_time
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kinds.warm_states import UNCLAIMED, WarmState, parse_state

StandbyMode = Literal["Running", "Paused", "Stopped"]
STANDBY_MODES: tuple[StandbyMode, ...] = ("Running", "Paused", "Stopped")
"""Sorted by the time until a claim gets the VM, shortest first."""

VM_KIND = "VirtualMachine"
POOL_KIND = "VirtualMachineWarmPool"
CLAIM_KIND = "VirtualMachineClaim"
API_VERSION = f"{meta.DOMAIN}/v1alpha1"

PAUSED_BY_USER = "PausedByUser"
"""KubeVirt's reason for a pause by a user. An I/O error can pause a VMI too."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    ready: bool = True
    leaving: bool = False
    """Whether the node is cordoned or drained."""

    @property
    def key(self) -> tuple[str, str]:
        return "", self.name


def parse_node(document: Json) -> Node:
    return Node(document["metadata"]["name"], node_is_ready(document), node_is_leaving(document))


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference without blockOwnerDeletion."""

    kind: str
    name: str
    uid: str
    api_version: str = API_VERSION
    controller: bool = True

    def json(self) -> Json:
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": self.controller,
        }


NO_OWNER = Owner("", "", "", "")


@dataclass(frozen=True, slots=True)
class WarmVM:
    namespace: str
    name: str
    uid: str
    """The UID of the VM, or the instance ID of an EC2 instance."""
    resource_version: str = ""
    state: WarmState | None = None
    pool: str = ""
    pool_uid: str = ""
    claim_uid: str = ""
    owner: Owner = NO_OWNER
    """The owner reference with `controller: true`."""
    other_owners: tuple[Owner, ...] = ()
    template_hash: str = ""
    placement: str = ""
    standby: StandbyMode = "Running"
    """The mode in which the VM waits for a claim, or which the VM is entering."""
    orphaned: str = ""
    """Why the VM was released from its pool."""
    created_at: str = ""
    """The creationTimestamp. Its text form sorts by time."""
    state_since: str = ""
    """The time of the last state change, or the creationTimestamp."""
    activated: bool = False
    """Whether the VM was started or handed over for a claim. An activated VM never becomes Ready again."""
    check_failures: int = 0
    """The number of failed checks since the VM became Unhealthy."""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    run_strategy: str = "Always"
    printable_status: str = ""
    agent: str = ""
    """`spec.agent` of the pool when the VM was made, as JSON."""
    start_failures: int = 0
    """The number of consecutive failed starts."""
    start_refusal: str = ""
    """Why KubeVirt could not create a VMI, such as the message of a quota; empty for a VM that has one."""
    vmi: VMI | None = None
    """The VMI from the cache, or None."""
    node: Node | None = None
    """The node from the cache, or None."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def unclaimed(self) -> bool:
        return self.state in UNCLAIMED and not self.claim_uid

    def owned_by(self, uid: str) -> bool:
        return bool(uid) and self.owner.uid == uid


def parse_warm_vm(document: Json) -> WarmVM:
    """Parses a VirtualMachine. Missing fields get their defaults."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    owners = [_parse_owner(each) for each in metadata.get("ownerReferences") or ()]
    created_at = metadata.get("creationTimestamp") or ""
    return WarmVM(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        state=parse_state(labels.get(meta.WARM_STATE)),
        pool=labels.get(meta.WARM_POOL, ""),
        pool_uid=labels.get(meta.POOL_UID, ""),
        claim_uid=labels.get(meta.CLAIM_UID, ""),
        owner=next((each for each in owners if each.controller), NO_OWNER),
        other_owners=tuple(each for each in owners if not each.controller),
        template_hash=labels.get(meta.TEMPLATE_HASH, ""),
        placement=labels.get(meta.PLACEMENT, ""),
        standby=next((each for each in STANDBY_MODES if each == labels.get(meta.STANDBY)), "Running"),
        orphaned=labels.get(meta.ORPHANED, ""),
        created_at=created_at,
        state_since=_valid_time(annotations.get(meta.STATE_SINCE, "")) or created_at,
        activated=meta.ACTIVATED_AT in annotations,
        check_failures=parse_count(annotations.get(meta.CHECK_FAILURES)),
        deleting=metadata.get("deletionTimestamp") is not None,
        agent=annotations.get(meta.AGENT, ""),
        labels=labels,
        run_strategy=run_strategy(spec),
        printable_status=status.get("printableStatus") or "",
        start_refusal="" if status.get("created") else start_refusal(status),
        start_failures=int((status.get("startFailure") or {}).get("consecutiveFailCount") or 0),
    )


def is_unowned(vm: WarmVM) -> bool:
    """Whether the VM looks like a waiting one of its pool, and is not. No claim gets it, and no pool deletes it."""
    return vm.owner == NO_OWNER and vm.unclaimed and not vm.deleting


def why_unavailable(vm: WarmVM) -> str:
    """Why no claim may get the VM now, or an empty string. The function reads only cached data."""
    if vm.state is not WarmState.READY:
        return f"it is {vm.state.value if vm.state else 'in no state'}"
    if vm.claim_uid:
        return "it has a claim"
    if vm.deleting:
        return "it is being deleted"
    return f"it is orphaned: {vm.orphaned}" if vm.orphaned else why_not_in_standby(vm)


def why_not_in_standby(vm: WarmVM) -> str:
    """Why the VM is not in its standby mode, or an empty string."""
    if vm.standby == "Stopped":
        return "" if vm.vmi is None else f"it is {vm.vmi.phase or 'starting'}, not stopped"
    if vm.vmi is None:
        return "it does not run"
    return _why_not_running(vm.vmi) or _why_node_unusable(vm.node) or _why_not_paused_or_ready(vm.vmi, vm.standby)


def _why_not_running(vmi: VMI) -> str:
    if not vmi.running:
        return "it is shutting down" if vmi.deleting else f"it is {vmi.phase or 'starting'}"
    return "it is being migrated" if vmi.migrating else ""


def _why_node_unusable(node: Node | None) -> str:
    if node is None or (node.ready and not node.leaving):
        return ""
    return f"node {node.name} is cordoned or drained" if node.ready else f"node {node.name} is not ready"


def _why_not_paused_or_ready(vmi: VMI, standby: StandbyMode) -> str:
    if standby == "Paused":
        return "" if vmi.paused == PAUSED_BY_USER else f"it is not paused ({vmi.paused or 'it runs'})"
    if vmi.paused:
        return f"it is paused ({vmi.paused})"
    return "" if "Ready" in vmi.conditions else "its VMI is not Ready"


def seconds_since(time: str, now: datetime) -> float:
    """The seconds from `time` until `now`, infinite for an empty `time`."""
    return (now - parse_time(time)).total_seconds() if time else float("inf")


def _valid_time(text: str) -> str:
    """An empty string for an invalid time: any user may write the annotation, and the reconcile must not fail."""
    try:
        parse_time(text)
    except ValueError:
        return ""
    return text


def with_resumed_guest(vm: WarmVM) -> WarmVM:
    """The VM as KubeVirt shows it about a second after an unpause, once it has updated the VMI, the Pod and the VMI."""
    vmi = vm.vmi
    if vmi is None or not vmi.running or vmi.paused not in ("", PAUSED_BY_USER):
        return vm
    conditions = (vmi.conditions | {"Ready"}) - {"Paused"}
    return replace(vm, vmi=replace(vmi, paused="", ready=True, conditions=conditions))


def _parse_owner(reference: Json) -> Owner:
    kind, name, uid, version = (reference.get(field, "") for field in ("kind", "name", "uid", "apiVersion"))
    return Owner(kind, name, uid, version, bool(reference.get("controller")))
