"""Says which changes of a template KubeVirt applies to a running VM, and which need a restart.

`FIELDS` is the table. It was read in KubeVirt's source at the tags v1.5.0, v1.6.0, v1.7.0, v1.8.0 and v1.9.0-rc.2. In
`pkg/virt-controller/watch/vm/vm.go`, virt-controller writes these fields of a VM into its running VMI. For any other
change it sets the condition RestartRequired (`syncRestartRequired`, before 1.8 `addRestartRequiredIfNeeded`). CPUs and
memory reach the guest by a live migration, which `pkg/virt-controller/watch/workload-updater/workload-updater.go`
begins. The releases differ in one rule that is not in the table: 1.5 requires a restart for more sockets with
`networkInterfaceMultiqueue`, and says so by RestartRequired.

`live_devices` reads NICs and hotpluggable disks, which have other rules. Before it compares, KubeVirt expands the
templates by their instance types. Here, callers give templates that are expanded already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from poolhouse.api.apimachinery.quantity import for_people, to_int
from poolhouse.api.apimachinery.unstructured import Json, at, entries, typed
from poolhouse.api.kubevirt.cluster_settings import ClusterSettings
from poolhouse.api.kubevirt.live_devices import Devices, disks_of, names_of, nics_of, shown_disks, shown_nics
from poolhouse.api.kubevirt.meaning import canonical, text_of
from poolhouse.api.kubevirt.versions import DECLARATIVE_HOTPLUG_VOLUMES, HOTPLUG_VOLUMES, Release

LIVE_BY_DEFAULT: Release = (1, 6)
"""the first release whose `vmRolloutStrategy` is LiveUpdate if the KubeVirt object names none
(`DefaultVMRolloutStrategy` in pkg/virt-config/virt-config.go)"""
NICS_SINCE: Release = (1, 6)
"""the first release that requires no restart for NICs (pkg/network/vmliveupdate), whatever `vmRolloutStrategy` is"""
LIVE_UPDATE, LIVE_MIGRATE = "LiveUpdate", "LiveMigrate"
PLACEMENT = ("nodeSelector", "affinity", "tolerations")
MEMORY_BLOCK, HUGE_BLOCK = 2 << 20, 1 << 30
"""The guest's memory must be a multiple of the first, and with huge pages of 1Gi of the second
(`ValidateLiveUpdateMemory` in pkg/liveupdate/memory/memory.go)."""


@dataclass(frozen=True, slots=True)
class LiveFields:
    """The fields of a VMI spec that KubeVirt changes in running VMIs. None and "" are absent."""

    sockets: int | None = None
    memory: int | None = None
    """bytes of guest memory"""
    placement: str = ""
    """a hash of what chooses the node"""
    nics: Devices = ()
    disks: Devices = ()
    """the hotpluggable ones"""


NO_FIELDS = LiveFields()


@dataclass(frozen=True, slots=True)
class RunningGuest:
    """What a VMI says about its own changes."""

    spec: LiveFields = NO_FIELDS
    """what KubeVirt has accepted for the VMI"""
    shown: LiveFields = NO_FIELDS
    """what KubeVirt has given to the guest"""
    architecture: str = ""
    max_sockets: int | None = None
    max_memory: int | None = None
    boot_memory: int | None = None
    block: int = MEMORY_BLOCK
    not_migratable: str = ""
    """why KubeVirt cannot migrate the VMI; empty if it can"""
    moved_at: str = ""
    """the end of the last migration, if that has succeeded"""
    failed_at: str = ""
    """the end of the last migration, if that has failed"""
    failure: str = ""
    current_memory: int | None = None
    """The bytes that the guest uses. It plugs and releases memory in its own time."""

    def has(self, fields: LiveFields) -> bool:
        """Whether the guest has exactly these fields, in the quickest way. Equal fields of VMs are one object."""
        return self.spec is fields and self.shown is fields


UNKNOWN_GUEST = RunningGuest()


def is_live_update(settings: ClusterSettings) -> bool:
    """Whether KubeVirt applies changes to running VMs (`IsVMRolloutStrategyLiveUpdate`)."""
    if settings.rollout_strategy:
        return settings.rollout_strategy == LIVE_UPDATE
    return settings.release is not None and settings.release >= LIVE_BY_DEFAULT


def _why_no_live_update(settings: ClusterSettings) -> str:
    if is_live_update(settings):
        return ""
    return f"vmRolloutStrategy of the KubeVirt object is {settings.rollout_strategy or 'not LiveUpdate'}"


def _why_no_nics(settings: ClusterSettings) -> str:
    known = settings.release is not None and settings.release >= NICS_SINCE
    return "" if known else "KubeVirt plugs NICs of running VMs since 1.6"


def _why_no_disks(settings: ClusterSettings) -> str:
    """`handleDeclarativeVolumeHotplug`"""
    gate, other = DECLARATIVE_HOTPLUG_VOLUMES, HOTPLUG_VOLUMES
    if not settings.enables(gate):
        return f"the feature gate {gate.name} of the KubeVirt object is off"
    if settings.enables(other):
        return f"the feature gate {other.name} of the KubeVirt object is on, which turns {gate.name} off"
    # 1.6 requires a restart for hotplugged disks with the strategy Stage.
    return _why_no_live_update(settings)


Value = int | str | Devices | None


@dataclass(frozen=True)
class LiveField:
    path: str
    """in the spec of a VMI"""
    noun: str
    name: str
    """in `LiveFields`"""
    moves: bool
    """whether KubeVirt migrates the guest for the change"""
    source: str
    """the function in KubeVirt that makes the change"""
    refusal: Callable[[Value, RunningGuest], str] = lambda new, guest: ""
    """why KubeVirt does not change the field to this value in the running guest, or "" """
    cluster: Callable[[ClusterSettings], str] = _why_no_live_update
    """why the cluster does not change the field in running VMs, or "" """

    @property
    def is_device(self) -> bool:
        return self.name in ("nics", "disks")

    def value(self, fields: LiveFields) -> Value:
        found: Value = getattr(fields, self.name)
        return found

    def describe(self, before: LiveFields, after: LiveFields) -> str:
        """`CPU sockets 1 to 2`"""
        if self.is_device:
            return self._describe_devices(getattr(before, self.name), getattr(after, self.name))
        if not self.moves:
            return self.noun
        return f"{self.noun} {_for_people(self.value(before))} to {_for_people(self.value(after))}"

    def _describe_devices(self, before: Devices, after: Devices) -> str:
        """`NIC blue added, NIC red removed`"""
        was, now = names_of(before), names_of(after)
        texts = dict.fromkeys(now - was, "added") | dict.fromkeys(was - now, "removed")
        texts |= dict.fromkeys(names_of(tuple({*before} ^ {*after})) & was & now, "changed")
        return ", ".join(f"{self.noun} {name} {text}" for name, text in sorted(texts.items())) or f"{self.noun}s"


def _for_people(value: Value) -> str:
    return for_people(value) if isinstance(value, int) else str(value or "unknown")


def _sockets_refusal(new: Value, guest: RunningGuest) -> str:
    now, most = guest.spec.sockets, guest.max_sockets
    if not isinstance(new, int) or now is None:
        return "the number of CPU sockets is given in only one of the templates"
    if new < now:
        return f"KubeVirt removes no CPU sockets from a running VM, and it has {now}"
    if guest.architecture == "arm64":
        return "KubeVirt adds no CPU sockets to a running VM on arm64"
    return f"its VMI can have at most {most or now} CPU sockets" if new > (most or now) else ""


def _memory_refusal(new: Value, guest: RunningGuest) -> str:
    if not isinstance(new, int) or guest.spec.memory is None:
        return "the memory is given in only one of the templates"
    if guest.max_memory is None:
        return "its VMI has no maxGuest memory, which KubeVirt gives on amd64 to VMs with at least 1Gi"
    if new > guest.max_memory:
        return f"its VMI can have at most {for_people(guest.max_memory)} of memory"
    if guest.boot_memory is not None and new < guest.boot_memory:
        return f"it started with {for_people(guest.boot_memory)} of memory, and cannot have less until it restarts"
    return f"its memory must be a multiple of {for_people(guest.block)}" if new % guest.block else ""


FIELDS: tuple[LiveField, ...] = (
    LiveField("domain.cpu.sockets", "CPU sockets", "sockets", True, "handleCPUChangeRequest", _sockets_refusal),
    LiveField("domain.memory.guest", "memory", "memory", True, "handleMemoryHotplugRequest", _memory_refusal),
    LiveField(
        ", ".join(PLACEMENT),
        "placement",
        "placement",
        False,
        "handleAffinityChangeRequest, handleTolerationsChangeRequest",
    ),
    LiveField(
        "networks, domain.devices.interfaces",
        "NIC",
        "nics",
        True,
        "applyDynamicIfaceRequestOnVMI",
        cluster=_why_no_nics,
    ),
    LiveField(
        "volumes, domain.devices.disks",
        "disk",
        "disks",
        False,
        "HandleDeclarativeVolumes",
        cluster=_why_no_disks,
    ),
)


def read_fields(spec: Json | None) -> LiveFields:
    """The live-updatable fields of a VMI spec."""
    sockets, memory = typed(int, spec, "domain", "cpu", "sockets"), at(spec, "domain", "memory", "guest")
    size = to_int(memory) if memory is not None else None
    return _fields(sockets, size, _placement(spec), nics_of(spec), disks_of(spec))


def without_fields(meaning: Json) -> Json:
    """A VMI spec without the live-updatable fields. A structure with nothing else counts as absent: VMs may have it
    from their hardware defaults."""
    domain = dict(meaning.get("domain") or {})
    for part, name in (("cpu", "sockets"), ("memory", "guest")):
        if isinstance(domain.get(part), dict):
            domain[part] = {key: value for key, value in domain[part].items() if key != name}
            if not domain[part]:
                del domain[part]
    return {**{key: value for key, value in meaning.items() if key not in PLACEMENT}, "domain": domain}


def read_guest(vmi: Json) -> RunningGuest:
    spec, status = vmi.get("spec") or {}, vmi.get("status") or {}
    asked = read_fields(spec)
    sockets = typed(int, status, "currentCPUTopology", "sockets") or asked.sockets
    return _guest(
        asked,
        _fields(
            sockets,
            _bytes(status, "memory", "guestRequested") or asked.memory,
            asked.placement,
            shown_nics(spec, status),
            shown_disks(spec, status),
        ),
        str(spec.get("architecture") or ""),
        typed(int, spec, "domain", "cpu", "maxSockets") or None,
        _bytes(spec, "domain", "memory", "maxGuest"),
        _bytes(status, "memory", "guestAtBoot"),
        HUGE_BLOCK if at(spec, "domain", "memory", "hugepages", "pageSize") == "1Gi" else MEMORY_BLOCK,
        _why_not_migratable(status),
        *_ended_migration(status),
        _bytes(status, "memory", "guestCurrent"),
    )


def _why_not_migratable(status: Json) -> str:
    found = next((each for _, each in entries(status, "conditions") if each.get("type") == "LiveMigratable"), {})
    return str(found.get("message") or found.get("reason") or "no reason") if found.get("status") == "False" else ""


def _ended_migration(status: Json) -> tuple[str, str, str]:
    """The end of the last migration, which is the first one if it succeeded, else the second, and why it failed."""
    state = status.get("migrationState") or {}
    end = str(state.get("endTimestamp") or "")
    if state.get("failed"):
        return "", end, str(state.get("failureReason") or "")
    return (end, "", "") if state.get("completed") else ("", "", "")


def merged(vm: LiveFields, template: LiveFields) -> LiveFields:
    """The fields of a VM that gets a template."""
    sockets, memory = template.sockets or vm.sockets, template.memory or vm.memory
    return _fields(sockets, memory, template.placement, template.nics, template.disks)


def changed(before: LiveFields, after: LiveFields) -> tuple[LiveField, ...]:
    return tuple(each for each in FIELDS if each.value(before) != each.value(after))


def behind(vm: LiveFields, template: LiveFields, guest: RunningGuest) -> tuple[LiveField, ...]:
    """What a VM has from its template, and its guest does not have."""
    return tuple(each for each in FIELDS if _is_behind(each, vm, template, guest))


def _is_behind(each: LiveField, vm: LiveFields, template: LiveFields, guest: RunningGuest) -> bool:
    if each.is_device:
        devices: tuple[Devices, ...] = tuple(getattr(fields, each.name) for fields in (vm, guest.spec, template))
        return _are_devices_behind(*devices, users_plug=each.name == "disks")
    wanted = each.value(template)
    if not each.moves or wanted is None or each.value(vm) != wanted:
        return False
    return any((has := each.value(fields)) is not None and has != wanted for fields in (guest.spec, guest.shown))


def _are_devices_behind(vm: Devices, vmi: Devices, template: Devices, *, users_plug: bool) -> bool:
    """Whether the VMI lacks a device of the template that its VM has, or has one that KubeVirt unplugs. Users may plug
    disks into a VMI alone."""
    missing, left = {*vm} - {*vmi}, {*vmi} - {*vm}
    return bool(names_of(tuple(missing)) & names_of(template)) or (bool(left) and not users_plug)


def shows(fields: Iterable[LiveField], vm: LiveFields, guest: RunningGuest) -> bool:
    """Whether the guest has these fields of its VM, and uses the memory that it got."""
    return is_given(fields, vm, guest) and (
        guest.current_memory is None or guest.current_memory >= (guest.shown.memory or 0)
    )


def is_given(fields: Iterable[LiveField], vm: LiveFields, guest: RunningGuest) -> bool:
    """Whether KubeVirt has given these fields of the VM to the guest, which may not use all of the memory yet."""
    return all(each.value(vm) == each.value(guest.spec) == each.value(guest.shown) for each in fields)


def is_accepted(fields: Iterable[LiveField], vm: LiveFields, guest: RunningGuest) -> bool:
    """Whether KubeVirt has written these fields of the VM into its VMI."""
    return all(each.value(vm) == each.value(guest.spec) for each in fields)


def refusal(
    fields: Iterable[LiveField], wanted: LiveFields, guest: RunningGuest, settings: ClusterSettings | None
) -> str:
    """Why KubeVirt does not give the running guest the wanted fields, or ""."""
    fields = tuple(fields)
    if settings is None:
        return "the KubeVirt object cannot be read"
    if reason := next(filter(None, (each.cluster(settings) for each in fields)), ""):
        return reason
    reasons = (each.refusal(each.value(wanted), guest) for each in fields)
    if reason := next(filter(None, reasons), ""):
        return reason
    return _why_no_migration(guest, settings) if needs_migration(fields, wanted, guest) else ""


def needs_migration(fields: Iterable[LiveField], wanted: LiveFields, guest: RunningGuest) -> bool:
    """Whether the guest gets the wanted fields only by a live migration. KubeVirt unplugs NICs where the guest runs."""
    added = names_of(wanted.nics) - names_of(guest.shown.nics)
    return any(each.moves and (each.name != "nics" or bool(added)) for each in fields)


def moves(
    fields: Iterable[LiveField], wanted: LiveFields, guest: RunningGuest, settings: ClusterSettings | None
) -> bool:
    """Whether KubeVirt migrates the guest to give it the wanted fields. After it has unplugged a NIC, it migrates a
    guest if it can, because the Pod still has the network (`shouldMigrateOnIfaceUnplug` in
    pkg/network/migration/evaluator.go). A NIC that only gets another state moves no guest."""
    possible = settings is not None and not _why_no_migration(guest, settings)
    same_nics = names_of(wanted.nics) == names_of(guest.shown.nics)
    return possible and any(each.moves and not (each.name == "nics" and same_nics) for each in fields)


def lacks(each: LiveField, wanted: LiveFields, guest: RunningGuest) -> bool:
    """Whether the guest does not have the wanted value yet. The claims of disks differ between VMs and templates."""
    return each.name == "disks" or not each.value(wanted) == each.value(guest.spec) == each.value(guest.shown)


def _why_no_migration(guest: RunningGuest, settings: ClusterSettings) -> str:
    if LIVE_MIGRATE not in settings.update_methods:
        return "the KubeVirt object lacks LiveMigrate in workloadUpdateStrategy.workloadUpdateMethods"
    return f"its VMI cannot be migrated: {guest.not_migratable}" if guest.not_migratable else ""


@lru_cache(maxsize=1024)
def _fields(
    sockets: int | None, memory: int | None, placement: str, nics: Devices = (), disks: Devices = ()
) -> LiveFields:
    """Thousands of VMs share one object."""
    return LiveFields(sockets, memory, placement, nics, disks)


@lru_cache(maxsize=1024)
def _guest(*facts: object) -> RunningGuest:
    return RunningGuest(*facts)  # type: ignore[arg-type]


def _placement(spec: Json | None) -> str:
    found = {name: value for name in PLACEMENT if (value := at(spec, name))}
    meaning = canonical(found, "VirtualMachineInstanceSpec") if found else None
    return hashlib.sha256(text_of(meaning).encode()).hexdigest()[:16] if meaning else ""


def _bytes(document: Json, *path: str) -> int | None:
    value = at(document, *path)
    return to_int(value) if value is not None else None
