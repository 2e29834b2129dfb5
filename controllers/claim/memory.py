"""What a process remembers of one claim between reconciles."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controllers.claim.snapshot import Claim, Failure, Timeline
from controllers.warmpool.agent import ApplicationHealth
from controllers.warmpool.backends import Health
from controllers.warmpool.warm_vm import WarmVM
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.runtime.reflector import is_older
from poolhouse.runtime.resource import Key

MAX_CACHE_LAG_SECONDS = 15.0
"""Maximum age of a write that the store may not show yet. Later, the controller lists the VMs from the API."""
RETRY_APPLICATION_SECONDS = 5.0
"""Pause between two attempts to read the ConfigMaps and Secrets of an application."""
ENDING_CHECK_SECONDS = 0.5
"""Period of the checks of an application that the agent stops."""
RESUME_SECONDS = 10.0
"""The time in which KubeVirt certainly shows in a VMI that its guest runs again. It usually takes about a second."""


@dataclass
class ClaimRecord:
    """The data of this process about one claim, in addition to the stores. A new leader does not need the record. It
    protects from decisions on stale data, and marks objects that must be read from the API. `Allocator.forget` drops
    the record of a deleted or finished claim."""

    vms_known: bool = False
    """whether all VMs with the claim's UID are in the stores or in this record"""
    stale: bool = False
    """whether the claim must be read from the API"""
    claim: Claim | None = None
    """the claim after the last write of this process"""
    vms: dict[str, tuple[WarmVM, float]] = field(default_factory=dict)
    """VMs after the last write or read of this process, with its time, by UID"""
    gone: set[str] = field(default_factory=set)
    """UIDs of VMs whose deletion the store has shown. The answer to an earlier write may come later."""
    own: set[str] = field(default_factory=set)
    """UIDs of the VMs that this process has reserved or created for the claim"""
    reserved: dict[str, Key] = field(default_factory=dict)
    """VMs that are reserved until the store shows the reservation, by UID"""
    rejected: dict[str, Key] = field(default_factory=dict)
    """VMs whose reservation was refused, by UID; the claim tries other VMs first"""
    creating: set[tuple[str, str]] = field(default_factory=set)
    """(pool UID, name) of VMs that this process requested"""
    placement_draws: int = 0
    """the number of refused creations; each creation draws another placement"""
    unconfirmed: str = ""
    """the name of a VM whose creation got no response"""
    health: Health | None = None
    """the result of the last step, dropped after the next step"""
    failure: Failure | None = None
    retry_at: float = 0.0
    """time of the next attempt after a failure"""
    failures: int = 0
    """consecutive failures"""
    resumed: tuple[str, float] | None = None
    """the UID of the VM that this process has unpaused, and the time"""
    personalization: tuple[str, tuple[Failure, ...]] | None = None
    """the UID of the personalized VM, and the requests that failed"""
    deletion: Failure | None = None
    """why this process deleted the claim's VM"""
    application: tuple[Json | Failure, float] | None = None
    """the claim's application, and the time at which it was read"""
    application_health: tuple[Health, float] | None = None
    """the health of the claim's application, and the time of the check"""
    without_stream: str = ""
    """the UID of the VM whose agent offers no stream of the application's health"""
    terminated_at: float | None = None
    """the time at which this process asked the agent to stop the claim's application"""
    timeline: Timeline = field(default_factory=Timeline)
    counted: bool = False
    """whether the history of the pool's demand includes the claim"""

    def read_application(self, now: float) -> Json | Failure | None:
        """The application. An attempt that failed is repeated after some seconds."""
        if self.application is None:
            return None
        found, at = self.application
        return None if isinstance(found, Failure) and now - at >= RETRY_APPLICATION_SECONDS else found

    def recent_application_health(self, now: float, period_seconds: float) -> Health | None:
        """The agent's last answer, if it is not older than a period. The end of a stopped
        application is returned after this period too, so that the status shows it when the VM is gone."""
        if self.application_health is None:
            return None
        found, at = self.application_health
        if self.terminated_at is None:
            return found if now - at < period_seconds else None
        stopped = isinstance(found, ApplicationHealth) and found.status.get("phase") in ("Succeeded", "Failed")
        return found if stopped or now - at < ENDING_CHECK_SECONDS else None

    def has_resumed(self, vm: WarmVM, now: float) -> bool:
        """Whether this process has unpaused the VM, and KubeVirt may not show it yet."""
        return self.resumed is not None and self.resumed[0] == vm.uid and now - self.resumed[1] < RESUME_SECONDS

    def latest(self, cached: Claim) -> Claim:
        """The claim after the last write of this process, until the store shows that version or a newer version."""
        same = self.claim is not None and self.claim.uid == cached.uid
        if self.claim is not None and same and is_older(cached.resource_version, self.claim.resource_version):
            return self.claim
        self.claim = None
        return cached

    def remember(self, vm: WarmVM, now: float) -> None:
        if vm.uid not in self.gone:
            self.vms[vm.uid] = (vm, now)

    def listed(self, vms: Iterable[WarmVM], now: float) -> None:
        """Replaces the VMs by a complete list of VMs with the claim's UID."""
        self.vms = {vm.uid: (vm, now) for vm in vms if vm.uid not in self.gone}
        self.vms_known = True

    def seconds_until_shown(self, cached: Iterable[WarmVM], now: float) -> float | None:
        """Seconds until this record forgets a VM that the store does not show. None if the store shows all."""
        hidden = self.vms.keys() - {vm.uid for vm in cached}
        ends = [at + MAX_CACHE_LAG_SECONDS - now for uid, (_, at) in self.vms.items() if uid in hidden]
        return max(0.1, min(ends)) if ends else None

    def merged(self, cached: Iterable[WarmVM], now: float) -> tuple[WarmVM, ...]:
        """The claim's VMs from the store, or from this record if its version is newer."""
        merged = {vm.uid: vm for vm in cached}
        for uid, (vm, at) in list(self.vms.items()):
            shown = merged.get(uid)
            if shown is not None and not is_older(shown.resource_version, vm.resource_version):
                # A VM that this process deleted stays deleted while the store shows its last version.
                if not vm.deleting or shown.deleting or shown.resource_version != vm.resource_version:
                    del self.vms[uid]
                    continue
            elif shown is None and now - at > MAX_CACHE_LAG_SECONDS:
                del self.vms[uid]
                self.vms_known = False
                continue
            merged[uid] = vm if vm.vmi is None and vm.node is None else replace(vm, vmi=None, node=None)
        return tuple(merged.values())

    def vm_deleted(self, uid: str) -> None:
        """Removes a VM whose deletion the store has shown."""
        self.vms.pop(uid, None)
        self.reserved.pop(uid, None)
        self.gone.add(uid)
        self.vms_known = False
