"""Builders for tests of claims. What a test does not name does not matter."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from controllers.claim.snapshot import Claim, ClaimSnapshot, Timeline, parse_claim
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from poolhouse.api.apimachinery.timestamps import format_micro_time
from poolhouse.api.kinds.resource_types import CLAIM_PHASES
from poolhouse.api.kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, ago

Json = dict[str, Any]

CLAIM_UID = "claim-uid"
AGE_SECONDS = 2.0
"""of the claim at NOW"""


def a_claim(*, status: Json | None = None, annotations: Json | None = None, **given: Any) -> Claim:
    """`given` has the API's field names: of the metadata, or of the spec."""
    metadata: Json = {"namespace": "ns", "name": "mine", "uid": CLAIM_UID, "generation": 1, "resourceVersion": "7"}
    metadata |= {"creationTimestamp": ago(AGE_SECONDS), "annotations": annotations or {}}
    for key in ("namespace", "name", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"):
        if key in given:
            metadata[key] = given.pop(key)
    status = dict(status or {})
    if status.get("phase") in CLAIM_PHASES.terminal:
        status.setdefault("observedGeneration", 1)
    return parse_claim({"metadata": metadata, "spec": {"poolName": "web", **given}, "status": status})


def bound_status(uid: str, launch: str = "Warm", *, seconds: float = 1.0, **status: Any) -> Json:
    """The status of a claim that has this VM."""
    since = format_micro_time(NOW - timedelta(seconds=seconds))
    found: Json = {
        "phase": "Bound",
        "poolName": "web",
        "vmRef": {"name": f"web-{uid}", "uid": uid},
        "launchType": launch,
        "boundAt": since,
        "attempts": 1,
    }
    return {key: value for key, value in {**found, **status}.items() if value is not None}


def claimed_vm(uid: str = "m", state: WarmState = WarmState.ALLOCATING, **facts: Any) -> WarmVM:
    """A VM with the claim's UID."""
    facts = {"claim_uid": CLAIM_UID, "owner": Owner(CLAIM_KIND, "mine", CLAIM_UID), **facts}
    return a_vm(uid, state, **facts)


def snapshot(c: Claim | None = None, *vms: WarmVM, pool: WarmPool | None = None, **facts: Any) -> ClaimSnapshot:
    """All VMs of the claim are known, and its pool exists."""
    home = pool or (None if "no_pool" in facts else a_pool())
    found = ClaimSnapshot(c or a_claim(), home, vms=vms, vms_known=True, timeline=Timeline(observed=NOW))
    return replace(found, **facts)
