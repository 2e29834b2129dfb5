"""The page "My VMs": the claims of a user, and the warm pools that the user may take a VM of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from poolhouse.api.apimachinery.counting import count_noun
from poolhouse.api.apimachinery.timestamps import known_time
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.resource_types import CLAIM_PHASES
from poolhouse.cli.claim_status import reason

SETTLED_SECONDS, WAITING_SECONDS = 15, 2
"""how often the page is read again: if nothing on it changes soon, and while a VM is awaited"""
HOURS = (1, 2, 4, 8)
"""choices of how much longer a user keeps a VM"""
CONNECTED = ("Bound", "Ready")
"""phases in which a claim has a VM"""


@dataclass(frozen=True)
class Seen:
    """What a user may see of the cluster."""

    user: str
    claims: Sequence[Json]
    pools: Sequence[Json]
    allowed: frozenset[str]
    """namespaces in which the user may create claims"""


def is_mine(claim: Json, user: str) -> bool:
    return bool(user) and (claim["metadata"].get("annotations") or {}).get(meta.REQUESTER) == user


def is_open(claim: Json) -> bool:
    """Whether a claim has a VM, waits for one, or has failed, which its user must learn."""
    ended = at(claim, "status", "phase") in CLAIM_PHASES.finished
    return not ended and not claim["metadata"].get("deletionTimestamp")


def vm_of(claim: Json) -> str:
    """The VM of the claim that has a screen; empty without one."""
    status = claim.get("status") or {}
    connected = status.get("phase") in CONNECTED and not (claim.get("spec") or {}).get("release")
    return str((status.get("vmRef") or {}).get("name") or "") if connected else ""


def page(seen: Seen, now: datetime) -> dict[str, Any]:
    """The values of the template."""
    mine = sorted((each for each in seen.claims if is_mine(each, seen.user) and is_open(each)), key=_created)
    vms = [vm_row(each, now) for each in mine]
    waits = any(each["waits"] for each in vms)
    return {
        "vms": vms,
        "pools": [pool_row(each, mine, seen.allowed) for each in sorted(seen.pools, key=_name)],
        "seconds": WAITING_SECONDS if waits else SETTLED_SECONDS,
    }


def vm_row(claim: Json, now: datetime) -> Json:
    metadata, status = claim["metadata"], claim.get("status") or {}
    state, text = _state(claim)
    end = known_time(str(status.get("expiresAt") or ""))
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "pool": _pool_of(claim)[1],
        "vm": vm_of(claim),
        "state": state,
        "waits": state in ("Waiting", "Starting", "Ending"),
        "text": text,
        "addresses": ", ".join(status.get("addresses") or ()) if state == "Ready" else "",
        "left": _left((end - now).total_seconds()) if end else "",
        "ends": status.get("expiresAt") or "",
        "hours": HOURS if end and state == "Ready" else (),
    }


def _state(claim: Json) -> tuple[str, str]:
    """The state in a word, and why it is so."""
    status = claim.get("status") or {}
    phase, released = status.get("phase") or "Pending", (claim.get("spec") or {}).get("release")
    if phase == CLAIM_PHASES.failed:
        return "Failed", reason(status).partition(": ")[2]
    if released or phase == "Releasing":
        return "Ending", "The VM and its disks are being deleted."
    if phase == "Ready":
        return "Ready", ""
    why = reason(status).partition(": ")[2]
    if phase == "Bound":
        return "Starting", why
    place = status.get("queuePosition")
    return "Waiting", ". ".join(filter(None, [f"Place {place} in the queue" if place else "", why]))


def _left(seconds: float) -> str:
    if seconds < 60:
        return "less than a minute"
    hours, minutes = divmod(int(seconds) // 60, 60)
    parts = (count_noun(hours, "hour") if hours else "", count_noun(minutes, "minute") if minutes else "")
    return " ".join(filter(None, parts[: 2 if hours < 10 else 1]))


def pool_row(pool: Json, mine: Iterable[Json], allowed: frozenset[str]) -> Json:
    """A warm pool, and why the user cannot take a VM of it."""
    metadata, spec, status = pool["metadata"], pool.get("spec") or {}, pool.get("status") or {}
    policy: Mapping[str, Any] = spec.get("claimPolicy") or {}
    key = metadata["namespace"], metadata["name"]
    held = sum(_pool_of(each) == key for each in mine if at(each, "status", "phase") != CLAIM_PHASES.failed)
    ready, limit = int(status.get("availableReplicas") or 0), policy.get("maxPerUser")
    refused = ""
    if key[0] not in allowed:
        refused = "You may not take a VM of this pool."
    elif limit is not None and held >= limit:
        refused = f"You have taken {count_noun(held, 'VM')} of this pool, which is the most that it gives one user."
    return {
        "namespace": key[0],
        "name": key[1],
        "ready": f"{count_noun(ready, 'VM')} ready" if ready else "None ready now: you may have to wait",
        "quota": f"You have {held} of at most {limit}" if limit is not None else "",
        "time": _left(int(policy["defaultTTLSeconds"])) if policy.get("defaultTTLSeconds") else "",
        "refused": refused,
    }


def _pool_of(claim: Json) -> tuple[str, str]:
    """The pool of the claim, also before the controllers have seen it."""
    name = at(claim, "status", "poolName") or at(claim, "spec", "poolName") or ""
    return claim["metadata"]["namespace"], str(name)


def _created(claim: Json) -> tuple[str, str]:
    return claim["metadata"].get("creationTimestamp") or "", claim["metadata"]["name"]


def _name(pool: Json) -> tuple[str, str]:
    return pool["metadata"]["namespace"], pool["metadata"]["name"]
