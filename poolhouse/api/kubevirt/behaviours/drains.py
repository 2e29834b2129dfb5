"""What the eviction of a launcher Pod does to a VM."""

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kubevirt.behaviours.steps import (
    ANY,
    Behaviour,
    Evacuates,
    Evict,
    Refusal,
    Remember,
    Replaced,
    Shows,
    running,
)

_DRAIN = "A pool limits by a PodDisruptionBudget how many of its VMs a drain stops at once."


def _evictable(strategy: str) -> Json:
    """A VM with this `evictionStrategy`. The annotation concerns the embedded stack only."""
    metadata = {"annotations": {"sim.poolhouse.dev/launcher-pods": "true"}}
    return {"template": {"metadata": metadata, "spec": {"evictionStrategy": strategy}}}


DRAINS: tuple[Behaviour, ...] = (
    Behaviour(
        "eviction-migrates",
        "the eviction of a VMI with LiveMigrate is denied, and KubeVirt creates a migration",
        _DRAIN,
        (
            *running(_evictable("LiveMigrate")),
            Shows("VMI", {"conditions.LiveMigratable": "True"}),
            Evict(Refusal(429, 'Eviction triggered evacuation of VMI "')),
            Evacuates(),
        ),
        guest=True,
    ),
    Behaviour(
        "eviction-marks",
        "the eviction of a VMI with External is denied, and marks the VMI with its node",
        _DRAIN,
        (
            *running(_evictable("External")),
            Evict(Refusal(429, 'Eviction triggered evacuation of VMI "')),
            Shows("VMI", {"status.evacuationNodeName": ANY, "status.phase": "Running"}),
            Evict(Refusal(429, 'Evacuation in progress: Eviction triggered evacuation of VMI "')),
        ),
        guest=True,
    ),
    Behaviour(
        "eviction-stops",
        "the eviction of a VMI with None stops the guest, and the VM gets another VMI",
        _DRAIN,
        (*running(_evictable("None")), Remember(), Evict(), Replaced()),
        guest=True,
    ),
)
