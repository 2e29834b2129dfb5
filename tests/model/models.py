"""The models by name, with what each explores beyond the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tests.model.claims import ClaimBounds, ClaimModel
from tests.model.pools import Bounds, PoolModel
from tests.model.search import Machine

HOOKS = [
    {"name": "drain", "transition": "Terminating", "timeoutSeconds": 60},
    {"name": "quiesce", "transition": "Restarting", "timeoutSeconds": 30, "defaultResult": "Continue"},
]
STEPS = [{"setReplicas": 1}, {"pause": {"durationSeconds": 20}}, {"setReplicas": "60%"}]


def updates(**proactive: Any) -> Mapping[str, Any]:
    return {"updateStrategy": {"proactive": proactive}}


POOLS: Mapping[str, Bounds] = {
    "proactive": Bounds(),
    "opportunistic": Bounds(
        {"updateStrategy": {"opportunistic": {}}, "scaleInStrategy": {"opportunistic": {}}},
        users=("scale", "template", "delete", "halt"),
        leaves=True,
    ),
    "unmanaged": Bounds({"updateStrategy": {"unmanaged": {}}, "scaleInStrategy": {"unmanaged": {}}}, leaves=True),
    "offline": Bounds({"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}),
    "recreate": Bounds(updates(replacePolicy="Recreate"), other_disk=True),
    "surge": Bounds(updates(maxSurge=1), other_disk=True),
    "steps": Bounds(updates(steps=STEPS, rollback={"failureThreshold": 2})),
    "snapshot": Bounds(updates(snapshotBeforeUpdate=True)),
    "window": Bounds({"maintenanceWindows": [{"schedule": "0 20 * * *", "durationSeconds": 3600}]}),
    "hooks": Bounds({"lifecycleHooks": HOOKS}),
    "healing": Bounds(
        {"autohealing": {"startupFailureThreshold": 2}}, kinds=("missing", "old", "new", "behind", "failing")
    ),
}

CLAIMS: Mapping[str, ClaimBounds] = {
    "cold-start": ClaimBounds(),
    "queue": ClaimBounds({"claimPolicy": {"onEmpty": "Queue"}, "maxTotal": 2}),
    "paused": ClaimBounds({"standby": {"mode": "Paused"}}),
    "stopped": ClaimBounds({"standby": {"mode": "Stopped"}}),
}

Make = Callable[..., Machine[Any]]


def of_pool(bounds: Bounds) -> Make:
    return lambda **given: PoolModel(replace(bounds, **given))


def of_claims(bounds: ClaimBounds) -> Make:
    return lambda **given: ClaimModel(replace(bounds, **given))


MODELS: Mapping[str, Make] = {
    **{f"pool-{name}": of_pool(bounds) for name, bounds in POOLS.items()},
    **{f"claim-{name}": of_claims(bounds) for name, bounds in CLAIMS.items()},
}
"""makes a model with other bounds than those of the table"""
