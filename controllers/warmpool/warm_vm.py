"""What is known of one warm machine, whatever holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from controllers.warmpool.node import Node
from controllers.warmpool.vmi import PAUSED_BY_USER, VMI
from kinds import meta
from kinds.vm_documents import run_strategy
from kinds.warm_states import UNCLAIMED, WarmState, parse_state

Json = dict[str, Any]

StandbyMode = Literal["Running", "Paused", "Stopped"]
STANDBY_MODES: tuple[StandbyMode, ...] = ("Running", "Paused", "Stopped")
"""how a machine waits, the soonest to be handed over first"""

VM_KIND = "VirtualMachine"
POOL_KIND = "VirtualMachineWarmPool"
CLAIM_KIND = "VirtualMachineClaim"
API_VERSION = f"{meta.DOMAIN}/v1alpha1"

MOST_DIGITS = 9
"""of a number that we have written"""


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference. Ours never block the deletion of who owns."""

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
    """A frozen view. `guest` and `node` are joined to it from stores of their own."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    state: WarmState | None = None
    pool: str = ""
    pool_uid: str = ""
    claim_uid: str = ""
    owner: Owner = NO_OWNER
    """who controls it"""
    other_owners: tuple[Owner, ...] = ()
    """owners that don't: they stay when it changes hands"""
    template_hash: str = ""
    placement: str = ""
    standby: StandbyMode = "Running"
    """how it waits, or is to wait"""
    orphaned: str = ""
    """why no pool takes care of it"""
    created_at: str = ""
    """creationTimestamp, which sorts as text"""
    state_since: str = ""
    """when its state was written; when it was made, for the first one"""
    activated: bool = False
    """woken, started or handed over for a claim: it may never be Ready again"""
    check_failures: int = 0
    """checks in a row that failed since it is Unhealthy"""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    run_strategy: str = "Always"
    """runStrategy"""
    printable_status: str = ""
    """printableStatus"""
    start_failures: int = 0
    """starts in a row that failed"""
    vmi: VMI | None = None
    node: Node | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def unclaimed(self) -> bool:
        """It is its pool's: in a state before any claim, and without one."""
        return self.state in UNCLAIMED and not self.claim_uid

    def owned_by(self, uid: str) -> bool:
        return bool(uid) and self.owner.uid == uid


def parse_warm_vm(document: Json) -> WarmVM:
    """The view of a VirtualMachine. Whatever is missing in it counts as nothing."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    owners = [_owner(each) for each in metadata.get("ownerReferences") or ()]
    born = metadata.get("creationTimestamp") or ""
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
        created_at=born,
        state_since=_time(annotations.get(meta.STATE_SINCE, "")) or born,
        activated=meta.ACTIVATED_AT in annotations,
        check_failures=_count(annotations.get(meta.CHECK_FAILURES, "")),
        deleting=metadata.get("deletionTimestamp") is not None,
        labels=labels,
        run_strategy=run_strategy(spec),
        printable_status=status.get("printableStatus") or "",
        start_failures=int((status.get("startFailure") or {}).get("consecutiveFailCount") or 0),
    )


def why_unavailable(m: WarmVM) -> str:
    """Why this machine may not be given to anybody now, or nothing. All that can be known without asking it."""
    if m.state is not WarmState.READY:
        return f"it is {m.state.value if m.state else 'in no state'}"
    if m.claim_uid:
        return "it has a claim"
    if m.deleting:
        return "it is being deleted"
    if m.orphaned:
        return f"it is orphaned: {m.orphaned}"
    return why_not_in_standby(m)


def why_not_in_standby(m: WarmVM) -> str:
    """Why it is not as a machine of its standby is, or nothing."""
    if m.standby == "Stopped":
        return "" if m.vmi is None else f"it is {m.vmi.phase or 'starting'}, not stopped"
    if m.vmi is None:
        return "it does not run"
    if not m.vmi.running:
        return "its run is ending" if m.vmi.deleting else f"it is {m.vmi.phase or 'starting'}"
    if m.vmi.migrating:
        return "it is being migrated"
    if m.node is not None and not m.node.ready:
        return f"node {m.node.name} does not answer"
    if m.node is not None and m.node.leaving:
        return f"node {m.node.name} is cordoned"
    if m.standby == "Paused":
        return "" if m.vmi.paused == PAUSED_BY_USER else f"it is not paused ({m.vmi.paused or 'it runs'})"
    if m.vmi.paused:
        return f"it is paused ({m.vmi.paused})"
    return "" if m.vmi.ready else "its instance is not Ready"


def seconds_since(text: str, now: datetime) -> float:
    """Since a time as the API writes it; for ever ago where there is none."""
    return (now - datetime.fromisoformat(text)).total_seconds() if text else float("inf")


def _time(text: str) -> str:
    """Annotations are anybody's to write: what is no time, with its zone, counts as none, or one machine would keep
    its pool from being looked at."""
    try:
        return text if datetime.fromisoformat(text).tzinfo is not None else ""
    except ValueError:
        return ""


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0


def _owner(reference: Json) -> Owner:
    return Owner(
        kind=reference.get("kind", ""),
        name=reference.get("name", ""),
        uid=reference.get("uid", ""),
        api_version=reference.get("apiVersion", ""),
        controller=bool(reference.get("controller")),
    )
