"""What tests of claims are made of: whatever a row does not name does not matter."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from apimachinery.timestamps import format_micro_time
from controllers.claim.snapshot import Claim, ClaimSnapshot, Timeline, parse_claim
from controllers.warmpool.warm_pool import WarmPool
from controllers.warmpool.warm_vm import CLAIM_KIND, Owner, WarmVM
from kinds.warm_states import WarmState
from tests.controllers.warmpool.builders import NOW, a_pool, a_vm, ago

Json = dict[str, Any]

CLAIM_UID = "claim-uid"
BORN = 2.0
"""seconds before NOW"""


def a_claim(*, status: Json | None = None, annotations: Json | None = None, **given: Any) -> Claim:
    """`given` is in the API's own words: metadata fields and the spec."""
    metadata: Json = {"namespace": "ns", "name": "mine", "uid": CLAIM_UID, "generation": 1, "resourceVersion": "7"}
    metadata |= {"creationTimestamp": ago(BORN), "annotations": annotations or {}}
    for key in ("name", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"):
        if key in given:
            metadata[key] = given.pop(key)
    return parse_claim({"metadata": metadata, "spec": {"poolName": "web", **given}, "status": status or {}})


def bound_status(uid: str, launch: str = "Warm", *, seconds: float = 1.0, **status: Any) -> Json:
    """The status of a claim whose machine is this one."""
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
    """A machine that the claim has."""
    facts = {"claim_uid": CLAIM_UID, "owner": Owner(CLAIM_KIND, "mine", CLAIM_UID), **facts}
    return a_vm(uid, state, **facts)


def snapshot(c: Claim | None = None, *machines: WarmVM, pool: WarmPool | None = None, **facts: Any) -> ClaimSnapshot:
    """Of a claim of which nothing is unknown, and whose pool is there."""
    home = pool or (None if "no_pool" in facts else a_pool())
    found = ClaimSnapshot(c or a_claim(), home, vms=machines, vms_known=True, timeline=Timeline(observed=NOW))
    return replace(found, **facts)
