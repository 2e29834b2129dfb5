"""The view of a VirtualMachine that controllers keep instead of the document, and of disks that outlive their VM."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from apimachinery.unstructured import Json, at, typed
from controllers.shared.names import parent_and_ordinal
from controllers.shared.vmi import VMI, ObjectView, object_facts, text
from kinds import meta
from kinds.vm_documents import run_strategy

DISKS = (
    ("dataVolume", "name"),
    ("persistentVolumeClaim", "claimName"),
    ("ephemeral", "persistentVolumeClaim", "claimName"),
)
"""Paths in a volume to the name of a DataVolume or PersistentVolumeClaim."""


def disk_names(vm: Json) -> tuple[str, ...]:
    """Names of the DataVolumes and PersistentVolumeClaims of a VM, or of a template, in their order."""
    templates = (vm.get("spec") or {}).get("dataVolumeTemplates") or ()
    return tuple(name for each in templates if (name := (each.get("metadata") or {}).get("name")))


def references(volume: Json, paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[Json, str]]:
    """The objects in a volume that hold a name at one of these paths, with the key of the name."""
    for *path, key in paths:
        holder = at(volume, *path)
        if isinstance(at(holder, key), str):
            yield holder, key


@dataclass(frozen=True, slots=True)
class RetainedDisk:
    """A PersistentVolumeClaim that outlived its VM, with the DataVolume of the same name if there is one."""

    namespace: str
    name: str
    retained_by: str
    """UID of the pool"""
    retained_for: str
    """name of the VM that gets the disk back"""


def parse_retained_disk(document: Json) -> RetainedDisk:
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    return RetainedDisk(
        metadata.get("namespace", ""), metadata["name"], labels.get(meta.KEPT_BY, ""), labels.get(meta.KEPT_FOR, "")
    )


ALWAYS_RUN = frozenset({"Always", "RerunOnFailure", "Once"})
KEEP_ENDED_VMI = frozenset({"Once", "Manual"})
"""Run strategies under which KubeVirt leaves a VMI in place after it has ended."""
POOL = "VirtualMachinePool.kubevirt.io"


@dataclass(frozen=True, slots=True)
class VM(ObjectView):
    base_name: str = ""
    """`web` of `web-3`, whoever owns the VM"""
    ordinal: int | None = None
    """3 of `web-3`"""
    resource_version: str = ""
    owner_uid: str = ""
    """UID of the controller in the owner references"""
    owner_kind: str = ""
    """group and kind of the controller: `VirtualMachinePool.kubevirt.io`"""
    owner_name: str = ""
    created_at: str = ""
    """creationTimestamp, which sorts as text"""
    deleted_at: str = ""
    """deletionTimestamp; empty while the VM is not being deleted"""
    labels: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    retains_disks: bool = False
    """the VM has our finalizer: its disks are to be retained"""
    retained_by: str = ""
    """UID of the pool that set the finalizer"""
    scale_in: str = ""
    """annotation or label poolhouse.dev/scale-in: `Protect`, `First`, or another text"""
    disks: tuple[str, ...] = ()
    """names of the DataVolumes made from dataVolumeTemplates, and of their PersistentVolumeClaims"""
    run_strategy: str = ""
    """spec.runStrategy, or its equivalent of spec.running"""
    should_run: bool = True
    """the run strategy and past requests ask for a running VMI"""
    vmi_exists: bool = False
    """status.created, unless the VMI has ended"""
    ready: bool = False
    printable_status: str = ""
    start_failures: int = 0
    vmi: VMI | None = None
    """the VM's present VMI, joined from the store of VMIs"""

    @property
    def pool_name(self) -> str:
        """Name of the VirtualMachinePool that controls the VM; empty without one."""
        return self.owner_name if self.owner_kind == POOL else ""

    @property
    def deleting(self) -> bool:
        return bool(self.deleted_at)

    @property
    def migrating(self) -> bool:
        return self.printable_status == "Migrating"

    @property
    def halted(self) -> bool:
        return not self.should_run and not self.vmi_exists

    @property
    def available(self) -> bool:
        """A VM that should run is ready; a VM that should not run is halted."""
        if not self.should_run:
            return not self.vmi_exists
        # status.ready of a VM stays true for a moment after its VMI has gone.
        return self.ready and self.vmi is not None and not self.vmi.deleting


def parse_vm(document: Json) -> VM:
    """Fields that the document lacks keep their defaults."""
    metadata = document["metadata"]
    spec, status = document.get("spec") or {}, document.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    base_name, ordinal = parent_and_ordinal(metadata["name"])
    strategy, created = run_strategy(spec), bool(status.get("created"))
    ended = _has_ended(strategy, status)
    return VM(
        **object_facts(document),
        base_name=base_name,
        ordinal=ordinal,
        revision=text(metadata, "labels", meta.REVISION),
        retains_disks=meta.KEEP_DISKS in (metadata.get("finalizers") or ()),
        retained_by=text(metadata, "annotations", meta.KEPT_BY),
        scale_in=text(metadata, "annotations", meta.SCALE_IN) or text(metadata, "labels", meta.SCALE_IN),
        disks=disk_names(document),
        run_strategy=strategy,
        # A VM with the strategy Manual should run once a user has started it.
        should_run=not ended and (strategy in ALWAYS_RUN or (strategy == "Manual" and created)),
        vmi_exists=created and not ended,
        ready=bool(status.get("ready")) or conditions.get("Ready") == "True",
        printable_status=text(status, "printableStatus"),
        start_failures=typed(int, status, "startFailure", "consecutiveFailCount") or 0,
    )


def _has_ended(strategy: str, status: Json) -> bool:
    """The VM has run, and KubeVirt does not start it again unless a user asks."""
    asked = any(each.get("action") == "Start" for each in status.get("stateChangeRequests") or ())
    if status.get("printableStatus") != "Stopped" or status.get("startFailure") or asked:
        return False
    if strategy == "RerunOnFailure":
        # KubeVirt starts a VM that has failed, or has not run under this strategy yet, without a request.
        return bool(status.get("runStrategy") == strategy)
    # A VM with the strategy Once that has no VMI is about to start.
    return strategy in KEEP_ENDED_VMI and bool(status.get("created"))


def join_vmi(vm: VM, vmi: VMI) -> VM:
    """The VM with its present VMI. A VM whose VMI has failed is down: its own status calls it stopped, as if a user had
    shut it down."""
    if vmi.phase != "Failed" or vmi.deleting or vm.run_strategy not in KEEP_ENDED_VMI:
        return replace(vm, vmi=vmi)
    return replace(vm, vmi=vmi, should_run=True, vmi_exists=True)
