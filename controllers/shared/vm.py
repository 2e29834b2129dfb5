"""The views of a VirtualMachine and of a retained disk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern

from controllers.shared.names import parent_and_ordinal
from controllers.shared.vmi import VMI, ObjectView, group_kind, object_facts, parse_count, text
from poolhouse.api.apimachinery.owner_references import controller_of
from poolhouse.api.apimachinery.unstructured import Json, at, typed
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.checks.metadata import is_subdomain
from poolhouse.api.kinds.vm_documents import run_strategy
from poolhouse.api.kubevirt.live_updates import NO_FIELDS, LiveFields, read_fields


def disk_names(vm: Json) -> tuple[str, ...]:
    """Names of the DataVolumes of a VM or template. Their PersistentVolumeClaims have the same names."""
    templates = (vm.get("spec") or {}).get("dataVolumeTemplates") or ()
    return tuple(name for each in templates if (name := (each.get("metadata") or {}).get("name")))


MATCHERS = ("instancetype", "preference")
"""The fields of a VM's spec that KubeVirt expands when it starts the VMI."""


def matchers_of(spec: Json) -> str:
    """The instance type and the preference that a VM's spec names, as a text. Empty without an instance type."""
    return json.dumps({key: spec.get(key) for key in MATCHERS}, sort_keys=True) if spec.get("instancetype") else ""


def references(volume: Json, paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[Json, str]]:
    """The objects in a volume with a name at one of these paths, and the key of the name."""
    for *path, key in paths:
        holder = at(volume, *path)
        if isinstance(at(holder, key), str):
            yield holder, key


@dataclass(frozen=True, slots=True)
class RetainedDisk:
    """A PersistentVolumeClaim that outlives its VM, with the DataVolume of the same name if one exists."""

    namespace: str
    name: str
    retained_by: str
    """UID of the pool"""
    retained_for: str
    """name of the VM that gets the disk back"""
    template_hash: str = ""
    """hash of the entry of dataVolumeTemplates that the disk was created from; empty if unknown"""
    persistent_state: bool = False
    """whether KubeVirt keeps the VM's TPM and EFI variables on it"""
    replaced: bool = False
    """whether an update replaced the disk by a new one"""
    created_at: str = ""
    """the creationTimestamp; its text form sorts by time"""
    uid: str = ""
    """UID of the PersistentVolumeClaim"""
    retained_at: str = ""
    """the annotation poolhouse.dev/retained-at; empty if somebody has removed it"""
    used_at: str = ""
    """the annotation poolhouse.dev/used-at"""
    deleting: bool = False

    @property
    def pool_key(self) -> tuple[str, str]:
        """of the pool that the name of its VM belongs to"""
        return self.namespace, parent_and_ordinal(self.retained_for)[0]


def parse_retained_disk(document: Json) -> RetainedDisk:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    return RetainedDisk(
        metadata.get("namespace", ""),
        metadata["name"],
        labels.get(meta.KEPT_BY, ""),
        labels.get(meta.KEPT_FOR, ""),
        labels.get(meta.DISK_TEMPLATE, ""),
        is_persistent_state(metadata),
        meta.REPLACED in labels,
        text(metadata, "creationTimestamp"),
        text(metadata, "uid"),
        text(metadata, "annotations", meta.RETAINED_AT),
        text(metadata, "annotations", meta.USED_AT),
        "deletionTimestamp" in metadata,
    )


PERSISTENT_STATE = "persistent-state-for"
"""KubeVirt's label of the PersistentVolumeClaims with a VM's TPM and EFI variables. Its value is the VM's name. Before
1.4, KubeVirt used the same text and the VM's name as the name of the claim."""


def is_persistent_state(metadata: Json) -> bool:
    return PERSISTENT_STATE in (metadata.get("labels") or {}) or metadata["name"].startswith(f"{PERSISTENT_STATE}-")


@dataclass(frozen=True, slots=True)
class LifecycleHold:
    """A VM's wait for the lifecycle hooks of its pool, before the pool stops the VM."""

    transition: str
    """`Terminating` or `Restarting`"""
    since: str
    vmi_uid: str
    """UID of the VMI that is to be stopped; empty if the VM had none"""
    hooks: tuple[tuple[str, str], ...] = ()
    """Names and annotations of the hooks that have not ended. The annotation is the time of the timeout, or
    `Abandon`."""


def parse_hold(metadata: Json) -> LifecycleHold | None:
    transition = text(metadata, "labels", meta.TRANSITION)
    if not transition:
        return None
    annotations = metadata.get("annotations") or {}
    hooks = (
        (name.removeprefix(meta.HOOK_PREFIX), value)
        for name, value in annotations.items()
        if name.startswith(meta.HOOK_PREFIX)
    )
    since, vmi = text(annotations, meta.TRANSITION_SINCE), text(annotations, meta.TRANSITION_VMI)
    return LifecycleHold(intern(transition), since, vmi, tuple(sorted(hooks)))


UNPROTECTED = ("", "First")
"""Values of poolhouse.dev/scale-in that do not protect the VM."""
ALWAYS_RUN = frozenset({"Always", "RerunOnFailure", "Once"})
KEEP_ENDED_VMI = frozenset({"Once", "Manual"})
"""Run strategies with which KubeVirt keeps a VMI that has ended."""
POOL = "VirtualMachinePool.kubevirt.io"
DATA_VOLUME_ERROR = "DataVolumeError"
"""status.printableStatus of a VM whose DataVolume has failed"""
MACHINE_TYPE = ("template", "spec", "domain", "machine", "type")
"""the path in the spec of a VM"""


@dataclass(frozen=True, slots=True)
class VM(ObjectView):
    base_name: str = ""
    """`web` in `web-3`, for any owner"""
    ordinal: int | None = None
    """3 in `web-3`"""
    resource_version: str = ""
    owner_uid: str = ""
    """UID of the controller owner"""
    owner_kind: str = ""
    """kind and group of the controller owner, such as `VirtualMachinePool.kubevirt.io`"""
    owner_name: str = ""
    adopted: bool = True
    """False if the reference to the owner lacks `controller: true`. The garbage collector deletes the VM with the pool
    all the same, so the pool makes the reference whole."""
    created_at: str = ""
    """the creationTimestamp; its text form sorts by time"""
    deleted_at: str = ""
    """the deletionTimestamp, or an empty string"""
    labels: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    retains_disks: bool = False
    """whether the VM has Poolhouse's finalizer, so that its disks are retained"""
    retained_by: str = ""
    """UID of the pool that set the finalizer"""
    hold: LifecycleHold | None = None
    scale_in: str = ""
    """the annotation or label poolhouse.dev/scale-in: `Protect`, `First`, or another text"""
    disks: tuple[str, ...] = ()
    """names of the DataVolumes from dataVolumeTemplates, and of their PersistentVolumeClaims"""
    disk_templates: str = ""
    """the annotation poolhouse.dev/disk-templates"""
    updates: int = 0
    """the annotation poolhouse.dev/updates: the number of updates before which the pool took a snapshot"""
    snapshot_in_progress: str = ""
    """the VirtualMachineSnapshot for which KubeVirt refuses some changes of the VM now"""
    restored: str = ""
    """the annotation poolhouse.dev/restored"""
    restore: str = ""
    """the annotation poolhouse.dev/restore-snapshots: the request of the last restore that has begun"""
    run_strategy_before: str = ""
    """the annotation poolhouse.dev/run-strategy: its run strategy before that restore"""
    replaced_disks: str = ""
    """the annotation poolhouse.dev/replaced-disks, without names that no replaced disk of the VM has"""
    left_fields: str = ""
    """the annotation poolhouse.dev/left-fields"""
    machine_type: str = ""
    """the machine type in the spec: canonical such as `pc-q35-9.2`, or an alias"""
    persists_state: bool = False
    """whether KubeVirt keeps TPM or EFI variables of the VM on a claim of its own"""
    run_strategy: str = ""
    """spec.runStrategy, or the run strategy that is equivalent to spec.running"""
    should_run: bool = True
    """whether the run strategy and past requests require a running VMI"""
    vmi_exists: bool = False
    """status.created, unless the VMI has ended"""
    ready: bool = False
    printable_status: str = ""
    start_failures: int = 0
    start_refusal: str = ""
    """why KubeVirt could not create the VM's VMI; empty if the VMI exists"""
    restart_required: str = ""
    """message of KubeVirt's condition RestartRequired; empty if the VMI has the VM's spec"""
    live: LiveFields = NO_FIELDS
    """the fields of the template that KubeVirt may change in the running VMI"""
    matchers: str = ""
    """its instance type and its preference (`matchers_of`)"""
    live_update_since: str = ""
    """the annotation poolhouse.dev/live-update-since"""
    vmi: VMI | None = None
    """the VM's current VMI from the store of VMIs, or None"""

    @property
    def pool_name(self) -> str:
        """The name of the VirtualMachinePool that controls the VM, or an empty string."""
        return self.owner_name if self.owner_kind == POOL else ""

    @property
    def has_pool_label(self) -> bool:
        """Whether the VM has the label of the pool in its name, as the VMs of that pool have."""
        return self.labels.get(meta.POOL) == self.base_name

    @property
    def unowned(self) -> bool:
        """Whether the VM looks like one of a pool, and is not. After a restore from a backup, VMs have no owners."""
        return not self.owner_uid and not self.deleting and self.has_pool_label

    @property
    def deleting(self) -> bool:
        return bool(self.deleted_at)

    @property
    def protected(self) -> bool:
        """Whether the VM is never deleted at scale-in and keeps its disks. Invalid values protect it too."""
        return self.scale_in not in UNPROTECTED

    @property
    def has_invalid_scale_in(self) -> bool:
        return self.scale_in not in (*UNPROTECTED, "Protect")

    @property
    def migrating(self) -> bool:
        return self.printable_status == "Migrating"

    @property
    def halted(self) -> bool:
        return not self.should_run and not self.vmi_exists

    @property
    def awaits_state(self) -> bool:
        """Whether a restore of the VM has begun, and the VM has not got its run strategy again."""
        return self.restore not in ("", self.restored)

    @property
    def held(self) -> bool:
        """Whether the VM waits for lifecycle hooks. A restart ends the hold, because the VM has another VMI then."""
        if self.hold is None:
            return False
        return self.terminating or (self.vmi is not None and self.vmi.uid == self.hold.vmi_uid)

    @property
    def terminating(self) -> bool:
        """Whether the VM is held before its deletion."""
        return self.hold is not None and self.hold.transition == "Terminating"

    @property
    def may_become_available(self) -> bool:
        """Whether the VM should run, is not held, and has a VMI that is not ready."""
        return self.should_run and self.vmi is not None and not (self.vmi.ready or self.held)

    @property
    def available(self) -> bool:
        """Whether a VM that should run is ready, or another VM is halted. A VM that is held is not available."""
        if self.held:
            return False
        if not self.should_run:
            return not self.vmi_exists
        # status.ready of a VM stays true for a moment after its VMI is deleted, also while the next VMI starts.
        return self.ready and self.vmi is not None and self.vmi.ready and not self.vmi.deleting


def parse_vm(document: Json) -> VM:
    """Parses a VirtualMachine. Missing fields get their defaults."""
    metadata = document["metadata"]
    spec, status = document.get("spec") or {}, document.get("status") or {}
    owner, adopted = controller_of(document), True
    if owner is None and (owner := _pool_reference(document)):
        adopted = False
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    base_name, ordinal = parent_and_ordinal(metadata["name"])
    strategy, created = run_strategy(spec), bool(status.get("created"))
    ended = _has_ended(strategy, status)
    return VM(
        **object_facts(document, owner),
        adopted=adopted,
        base_name=base_name,
        ordinal=ordinal,
        revision=text(metadata, "labels", meta.REVISION),
        retains_disks=meta.KEEP_DISKS in (metadata.get("finalizers") or ()),
        retained_by=text(metadata, "annotations", meta.KEPT_BY),
        hold=parse_hold(metadata),
        scale_in=text(metadata, "annotations", meta.SCALE_IN) or text(metadata, "labels", meta.SCALE_IN),
        disks=disk_names(document),
        disk_templates=intern(text(metadata, "annotations", meta.DISK_TEMPLATES)),
        updates=parse_count(text(metadata, "annotations", meta.UPDATES)),
        snapshot_in_progress=text(status, "snapshotInProgress"),
        restored=text(metadata, "annotations", meta.RESTORED),
        restore=text(metadata, "annotations", meta.RESTORE),
        run_strategy_before=text(metadata, "annotations", meta.RUN_STRATEGY),
        replaced_disks=_replaced_disks(text(metadata, "annotations", meta.REPLACED_DISKS), ordinal),
        left_fields=text(metadata, "annotations", meta.LEFT_FIELDS),
        machine_type=intern(text(spec, *MACHINE_TYPE)),
        persists_state=_persists_state(spec),
        run_strategy=strategy,
        # A VM with the strategy Manual should run after a user has started it.
        should_run=not ended and (strategy in ALWAYS_RUN or (strategy == "Manual" and created)),
        vmi_exists=created and not ended,
        ready=bool(status.get("ready")) or conditions.get("Ready") == "True",
        printable_status=text(status, "printableStatus"),
        start_failures=typed(int, status, "startFailure", "consecutiveFailCount") or 0,
        start_refusal="" if created else start_refusal(status),
        restart_required=_restart_required(status),
        live=_live_fields(spec, owner),
        matchers=intern(matchers_of(spec)),
        live_update_since=text(metadata, "annotations", meta.LIVE_UPDATE_SINCE),
    )


def _live_fields(spec: Json, owner: Json | None) -> LiveFields:
    """Nothing for the VM of another owner, because only pools read them: they take a third of the time of a VM."""
    return read_fields(at(spec, "template", "spec")) if owner is None or group_kind(owner) == POOL else NO_FIELDS


def _replaced_disks(annotation: str, ordinal: int | None) -> str:
    """The entries `NAME=HASH` whose disk has the VM's ordinal, as each disk that an update replaces."""

    def fits(entry: str) -> bool:
        name = entry.strip().partition("=")[0]
        return is_subdomain(name) and parent_and_ordinal(name)[1] == ordinal

    return ",".join(filter(fits, annotation.split(","))) if annotation and ordinal is not None else ""


def start_refusal(status: Json) -> str:
    """The message of KubeVirt's condition Failure. Its other reasons are about VMIs that exist."""
    found = (c for c in status.get("conditions") or () if c.get("type") == "Failure" and c.get("status") == "True")
    return next((intern(text(c, "message")) for c in found if c.get("reason") == "FailedCreate"), "")


def _restart_required(status: Json) -> str:
    found = (c for c in status.get("conditions") or () if c.get("type") == "RestartRequired")
    return next((intern(str(c.get("message") or "no message")) for c in found if c.get("status") == "True"), "")


def _persists_state(spec: Json) -> bool:
    domain = at(spec, "template", "spec", "domain")
    has_tpm = at(domain, "devices", "tpm", "enabled") is not False
    return (has_tpm and at(domain, "devices", "tpm", "persistent") is True) or (
        at(domain, "firmware", "bootloader", "efi", "persistent") is True
    )


def _pool_reference(document: Json) -> Json | None:
    references = document["metadata"].get("ownerReferences") or ()
    return next((each for each in references if group_kind(each) == POOL), None)


def _has_ended(strategy: str, status: Json) -> bool:
    """Whether the VM has run, and KubeVirt does not start it again without a request."""
    asked = any(each.get("action") == "Start" for each in status.get("stateChangeRequests") or ())
    if status.get("printableStatus") != "Stopped" or status.get("startFailure") or asked:
        return False
    if strategy == "RerunOnFailure":
        # Without a request, KubeVirt starts a VM that has failed, or has not run with this strategy yet.
        return bool(status.get("runStrategy") == strategy)
    # A VM with the strategy Once and without a VMI is about to start.
    return strategy in KEEP_ENDED_VMI and bool(status.get("created"))


def join_vmi(vm: VM, vmi: VMI) -> VM:
    """Adds the current VMI to the VM. If the VMI has failed, the VM should run: its own status is the same as after a
    shutdown by a user."""
    if vmi.phase != "Failed" or vmi.deleting or vm.run_strategy not in KEEP_ENDED_VMI:
        return replace(vm, vmi=vmi)
    return replace(vm, vmi=vmi, should_run=True, vmi_exists=True)
